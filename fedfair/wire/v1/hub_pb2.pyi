from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ActsRequest(_message.Message):
    __slots__ = ("since", "wait_seconds")
    SINCE_FIELD_NUMBER: _ClassVar[int]
    WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    since: int
    wait_seconds: int
    def __init__(self, since: _Optional[int] = ..., wait_seconds: _Optional[int] = ...) -> None: ...

class GetRequest(_message.Message):
    __slots__ = ("digest", "offset")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    digest: bytes
    offset: int
    def __init__(self, digest: _Optional[bytes] = ..., offset: _Optional[int] = ...) -> None: ...

class PutRequest(_message.Message):
    __slots__ = ("digest", "length", "offset", "data")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    digest: bytes
    length: int
    offset: int
    data: bytes
    def __init__(self, digest: _Optional[bytes] = ..., length: _Optional[int] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class ActRequest(_message.Message):
    __slots__ = ("act",)
    ACT_FIELD_NUMBER: _ClassVar[int]
    act: bytes
    def __init__(self, act: _Optional[bytes] = ...) -> None: ...

class HubReply(_message.Message):
    __slots__ = ("entries", "piece", "held", "entry", "refusal")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    entries: Entries
    piece: Piece
    held: Held
    entry: Entry
    refusal: Refusal
    def __init__(self, entries: _Optional[_Union[Entries, _Mapping]] = ..., piece: _Optional[_Union[Piece, _Mapping]] = ..., held: _Optional[_Union[Held, _Mapping]] = ..., entry: _Optional[_Union[Entry, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ...) -> None: ...

class Entries(_message.Message):
    __slots__ = ("entries",)
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, entries: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Piece(_message.Message):
    __slots__ = ("length", "data")
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    length: int
    data: bytes
    def __init__(self, length: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class Held(_message.Message):
    __slots__ = ("bytes",)
    BYTES_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    def __init__(self, bytes: _Optional[int] = ...) -> None: ...

class Entry(_message.Message):
    __slots__ = ("entry",)
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    entry: bytes
    def __init__(self, entry: _Optional[bytes] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("check", "words", "remedy")
    CHECK_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    REMEDY_FIELD_NUMBER: _ClassVar[int]
    check: str
    words: str
    remedy: str
    def __init__(self, check: _Optional[str] = ..., words: _Optional[str] = ..., remedy: _Optional[str] = ...) -> None: ...
