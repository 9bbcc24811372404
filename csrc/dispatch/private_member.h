// Private members of torch's classes, named in explicit template instantiations, where access is not checked: legal C++
// that stops compiling, rather than working wrongly, when a release renames or retypes one.
#pragma once

namespace tracer::dispatch::layout {

template <class Tag, typename Tag::type Member>
struct Access {
  friend typename Tag::type member(Tag) { return Member; }
};

// Types that are private themselves cannot be written down, so their members are taken with auto.
template <class Tag, auto Member>
struct AccessAny {
  friend auto member(Tag) { return Member; }
};

}  // namespace tracer::dispatch::layout

// `object.*member(layout::TAG{})` is the member; in the namespace layout.
#define TRACER_PRIVATE_MEMBER(tag, owner, type_of_member, name) \
  struct tag {                                                  \
    using type = type_of_member owner::*;                       \
    friend type member(tag);                                    \
  };                                                            \
  template struct Access<tag, &owner::name>
