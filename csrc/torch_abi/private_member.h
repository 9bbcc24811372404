// This folder is all that the recorder knows of torch beyond its public interface. docs/versions.md has a table with a row for
// each member, name and layout: where it is used, what happens when a release changes it, and which check sees that.
//
//   private_member.h        how a private member is named (below)
//   dispatch_table.h        the words of the dispatcher's tables, the operators' entries, the dispatcher's lock
//   computed_entry.h        the entry that the registrations give, and where its kernel was registered
//   dispatcher_functions.h  functions of the dispatcher that are replaced by way of their PLT slots
//   function_names.h        mangled names of functions that call or redispatch
//   functors.h              classes of functors, and what they hold
//   tensor.h                autograd's state of a tensor, and what a Python subclass answers itself
//   python_node.h           the Python object of an autograd node
//   callback_list.h         torch's list of RecordFunction callbacks
//   python_types.h          the types of Python's objects
//   python_names.h          classes and methods of torch's Python part
//
// tracer/base/torch_abi.py is the same for Python. `make check-layout` compiles this folder against several releases and looks
// for its names.
//
// Private members are named in explicit template instantiations, where access is not checked: legal C++ that stops compiling,
// rather than working wrongly, when a release renames or retypes one.
#pragma once

namespace tracer::torch_abi::layout {

template <class Tag, typename Tag::type Member>
struct Access {
  friend typename Tag::type member(Tag) { return Member; }
};

// Types that are private themselves cannot be written down, so their members are taken with auto.
template <class Tag, auto Member>
struct AccessAny {
  friend auto member(Tag) { return Member; }
};

}  // namespace tracer::torch_abi::layout

// `object.*member(layout::TAG{})` is the member; in the namespace torch_abi::layout.
#define TRACER_PRIVATE_MEMBER(tag, owner, type_of_member, name) \
  struct tag {                                                  \
    using type = type_of_member owner::*;                       \
    friend type member(tag);                                    \
  };                                                            \
  template struct Access<tag, &owner::name>
