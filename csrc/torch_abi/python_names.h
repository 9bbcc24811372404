// Classes and methods of torch's Python part that no documentation promises.
#pragma once

namespace tracer::torch_abi {

// Of a module class: what every call of a module goes through.
constexpr const char* kModuleCall = "_call_impl";

// Classes whose instances are what was compiled. A backward, code of cpp_wrapper and CUDA graphs of Inductor go through the first.
struct PythonClass {
  const char* module;
  const char* type;
};
constexpr PythonClass kCompiled[] = {
    {"torch._inductor.output_code", "CompiledFxGraph"},
    {"torch._inductor.output_code", "CompiledAOTI"},
    {"torch.export.pt2_archive._package", "AOTICompiledModel"},
    {"torch._inductor.package.package", "AOTICompiledModel"},
};

// What torch.library.custom_op registers for each device, and the dictionary in which that finds the user's function; the
// set of devices whose function is disabled, and the function that runs for those.
constexpr const char* kCustomOpKernel = "CustomOpDef.register_kernel.<locals>.inner.<locals>.backend_impl";
constexpr const char* kCustomOpFunctions = "_backend_fns";
constexpr const char* kCustomOpDisabled = "_disabled_kernel";
constexpr const char* kCustomOpFirst = "_init_fn";

}  // namespace tracer::torch_abi
