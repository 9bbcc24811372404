"""Functions that `step` passes over: the standard library and what holds a dispatcher together.

Dispatcher, KernelFunction and the wrappers of kernel functions are not among them: what gdb steps over it
steps over with all that it calls, and through these goes the way to the kernel function.
"""

import gdb

# Beginnings of names; gdb's patterns for files would not cross a folder.
_SKIPPED = (
    "std::", "__gnu_cxx::", "__cxa_", "__GI_", "at::_ops::create_", "c10::Dispatcher::singleton",
    "operator.new", "operator.delete", "c10::ArrayRef<", "c10::HeaderOnlyArrayRef<",
    "c10::OptionalArrayRef<", "c10::IListRef", "c10::List<", "c10::SymInt", "c10::Scalar",
    "c10::optional", "c10::Device", "c10::Layout", "c10::MemoryFormat", "c10::TypeMeta",
    "caffe2::TypeMeta", "c10::typeMetaToScalarType", "c10::scalarTypeToTypeMeta", "c10::intrusive_ptr",
    "c10::raw::", "c10::detail", "c10::guts::", "c10::MaybeOwned", "c10::ExclusivelyOwned",
    "c10::TensorImpl::", "c10::UndefinedTensorImpl::", "c10::Storage", "c10::impl::SizesAndStrides",
    "c10::impl::PyObjectSlot", "c10::DispatchKey", "c10::toFunctionality", "c10::toBackend",
    "c10::hasTensor", "c10::operator", "c10::impl::LocalDispatchKeySet", "c10::impl::tls_",
    "c10::impl::IncludeDispatchKeyGuard", "c10::impl::ExcludeDispatchKeyGuard",
    "c10::impl::PODLocalDispatchKeySet", "c10::impl::raw_local", "c10::impl::computeDispatchKeySet",
    "c10::impl::OperatorEntry", "c10::OperatorHandle", "c10::BoxedKernel",
    "c10::KernelFunction::isValid", "c10::KernelFunction::KernelFunction", "c10::InferenceMode",
    "c10::isIntegralType", "c10::isFloatingType", "c10::isComplexType", "at::TensorBase::",
    "at::Tensor::Tensor", "at::Tensor::~Tensor", "at::Tensor::operator", "at::NoNamesGuard",
    "at::namedinference::", "at::NamesMode", "at::AutoDispatchBelow", "at::RecordFunction",
    "at::shouldRun",
)  # fmt: skip


class Plumbing:
    """Whether `step` leads into plumbing; at first it does not."""

    def __init__(self):
        self._numbers = []
        self.show(False)

    def show(self, wanted):
        """Lets `step` into plumbing, or not."""
        for number in self._numbers:
            gdb.execute("skip delete %s" % number, to_string=True)
        self._numbers = []
        if not wanted:
            before = _numbers()
            gdb.execute("skip -rfu ^\\(%s\\)" % "\\|".join(_SKIPPED), to_string=True)
            self._numbers = sorted(_numbers() - before)


def _numbers():
    lines = gdb.execute("info skip", to_string=True).splitlines()
    return {line.split()[0] for line in lines if line[:1].isdigit()}
