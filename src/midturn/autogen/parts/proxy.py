"""Make an object that looks like another one, and takes over some of its methods.

The class of a proxy is no subclass of the real class, so it does not matter what that class is like: it may have
``__slots__``, be frozen, be a pydantic model, have a metaclass, or be a wrapper that forwards everything.
``isinstance()``, ``super()``, pydantic and ``functools.singledispatch`` look at ``__class__``, which is the real class.
Everything that is set on a proxy is set on the real object.
"""

from __future__ import annotations

from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from midturn.record.codec import class_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

HEAP = 1 << 9
"""The flag of classes that are written in Python, or made like those."""

OWN = {
    *("__class__", "__dict__", "__doc__", "__module__", "__slots__", "__weakref__", "__del__", "__abstractmethods__"),
    *("__new__", "__init__", "__init_subclass__", "__subclasshook__", "__class_getitem__", "__set_name__"),
    *("__getattr__", "__getattribute__", "__setattr__", "__delattr__", "__copy__", "__deepcopy__"),
}
"""Special names that a proxy does not take from the real class."""

ALWAYS = ("__repr__", "__str__", "__format__", "__eq__", "__ne__", "__hash__", "__reduce__", "__reduce_ex__", "__dir__")
"""Special methods that every proxy forwards."""


class ProxyType(type):
    """The class of the classes of proxies. Such a class may be used as if it were the real class."""

    midturn_class: type[Any]
    midturn_rebinds: frozenset[str] | None

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls.midturn_class, name)

    def __call__(cls, *args: Any, **options: Any) -> Any:
        return cls.midturn_class(*args, **options)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.midturn_class)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls.midturn_class)


class Proxy(metaclass=ProxyType):
    """The class of all proxies."""

    __slots__ = ("__weakref__", "midturn_aside", "midturn_real")

    midturn_class = object
    midturn_rebinds: frozenset[str] | None = frozenset[str]()

    def __getattr__(self, name: str) -> Any:
        real = real_of(self)
        found = getattr(real, name)
        if class_of(found) is MethodType and found.__self__ is real:
            rebinds = class_of(self).midturn_rebinds
            if rebinds is None or name in rebinds:
                return MethodType(found.__func__, self)
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        real = real_of(self)
        setattr(real, name, real if value is self else value)

    def __delattr__(self, name: str) -> None:
        delattr(real_of(self), name)


_REAL = vars(Proxy)["midturn_real"]
_ASIDE = vars(Proxy)["midturn_aside"]

real_of: Callable[[Any], Any] = _REAL.__get__
"""Return the real object of a proxy."""

aside_of: Callable[[Any], Any] = _ASIDE.__get__
"""Return the object that the hooks of a proxy get."""


def is_proxy(value: object) -> bool:
    """Return whether an object is a proxy. Loops over many objects compare the types themselves."""
    return class_of(class_of(value)) is ProxyType


def unwrapped(value: Any) -> Any:
    """Return the real object of a proxy; any other object as it is."""
    return real_of(value) if class_of(class_of(value)) is ProxyType else value


def real_class(cls: Any) -> Any:
    """Return the real class of a class of proxies; any other class as it is."""
    return cls.midturn_class if class_of(cls) is ProxyType else cls


set_aside: Callable[[Any, Any], None] = _ASIDE.__set__
"""Set the object that the hooks of a proxy get."""


def make(cls: Any, real: Any, aside: Any) -> Any:
    """Make a proxy of a class that stands for an object of the real class; its hooks get the object ``aside``."""
    made: Any = object.__new__(cls)
    _REAL.__set__(made, real)
    _ASIDE.__set__(made, aside)
    return made


class _Hook:
    """A method that a proxy takes over. It gets the object at the side of the proxy, and the real method."""

    def __init__(self, name: str, method: Callable[..., Any]) -> None:
        self._name, self._method = name, method

    def __get__(self, proxy: Any, owner: ProxyType) -> Any:
        if proxy is None:
            return getattr(owner.midturn_class, self._name)
        return partial(self._method, aside_of(proxy), getattr(real_of(proxy), self._name))


def proxy_class(cls: Any, hooks: Mapping[str, Callable[..., Any]]) -> ProxyType:
    """Return a class of proxies for the objects of a class; ``hooks`` take over the methods of these names."""
    special = {
        name
        for each in lineage(cls)
        for name, value in vars(each).items()
        if each is not object and _is_special(name) and callable(value) and not isinstance(value, type)
    }
    names: dict[str, Any] = {name: _forwarded(name) for name in (*special, *ALWAYS)}
    names |= {name: _Hook(name, hook) for name, hook in hooks.items()}
    names["__class__"] = property(lambda self: real_of(self).__class__)
    names["__dict__"] = property(lambda self: real_of(self).__dict__)
    names |= {"__slots__": (), "__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    names |= {"midturn_class": cls, "midturn_rebinds": None if _is_plain(cls) else _calling(cls, hooks)}
    return ProxyType(cls.__name__, (Proxy,), names)


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__") and name not in OWN


def _forwarded(name: str) -> Any:
    """Return a special method that calls the real one, or ``None`` if the real class has switched the method off."""
    if name == "__aenter__":

        async def enter(self: Any) -> Any:
            real = real_of(self)
            found = await _bound(self, real, name)()
            return self if found is real else found

        return enter

    def method(self: Any, *args: Any, **options: Any) -> Any:
        real = real_of(self)
        found = _bound(self, real, name)(*map(unwrapped, args), **options)
        return self if found is real else found

    return method


def _bound(proxy: Any, real: Any, name: str) -> Any:
    """Return a special method, bound to the proxy if that can be."""
    function = getattr(class_of(real), name)
    if class_of(function) is FunctionType and class_of(proxy).midturn_rebinds is None:
        return MethodType(function, proxy)
    return partial(function, real)


def _is_plain(cls: Any) -> bool:
    """Return whether methods of a class work with a proxy as ``self``.

    Then all of them get it, so that the calls that they make on ``self`` are seen. Methods of a class that is based on
    C, or stores its attributes in its own way, may need the real object.
    """
    return all(
        each is object or (each.__flags__ & HEAP and not {"__setattr__", "__getattribute__"} & set(vars(each)))
        for each in lineage(cls)
    )


def lineage(cls: Any) -> Sequence[type[Any]]:
    """Return a class and all that it is based on."""
    found: Sequence[type[Any]] = cls.__mro__
    return found


def _calling(cls: Any, hooks: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the methods of a class that call a hooked method on ``self``, or such a method."""
    used = {
        name: {used for code in _codes(value) for used in code.co_names}
        for each in reversed(lineage(cls))
        for name, value in vars(each).items()
        if isinstance(value, FunctionType) and name not in hooks
    }
    found, more = set(hooks), set(hooks)
    while more:
        more = {name for name, names in used.items() if name not in found and not names.isdisjoint(found)}
        found |= more
    return frozenset(found - set(hooks))


def _codes(function: Any, depth: int = 3) -> Iterator[CodeType]:
    """Yield the code of a function, of the functions inside it, and of the functions that it decorates."""
    if isinstance(function, CodeType):
        yield function
        for constant in function.co_consts:
            if isinstance(constant, CodeType):
                yield from _codes(constant)
    elif isinstance(function, FunctionType) and depth:
        yield from _codes(function.__code__)
        for cell in function.__closure__ or ():
            try:
                inside = cell.cell_contents
            except ValueError:  # a name that has no value yet
                continue
            yield from _codes(inside, depth - 1)
