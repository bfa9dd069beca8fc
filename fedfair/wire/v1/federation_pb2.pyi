from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CollaboratorFrame(_message.Message):
    __slots__ = ("hello", "upload", "chunk", "abstain", "masked")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    ABSTAIN_FIELD_NUMBER: _ClassVar[int]
    MASKED_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    upload: UploadStart
    chunk: Chunk
    abstain: Abstain
    masked: SecaggMessage
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., upload: _Optional[_Union[UploadStart, _Mapping]] = ..., chunk: _Optional[_Union[Chunk, _Mapping]] = ..., abstain: _Optional[_Union[Abstain, _Mapping]] = ..., masked: _Optional[_Union[SecaggMessage, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol_version", "software_version", "plan_digest", "approval", "certificate_binding", "session")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_VERSION_FIELD_NUMBER: _ClassVar[int]
    PLAN_DIGEST_FIELD_NUMBER: _ClassVar[int]
    APPROVAL_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_BINDING_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    software_version: str
    plan_digest: bytes
    approval: bytes
    certificate_binding: bytes
    session: bytes
    def __init__(self, protocol_version: _Optional[int] = ..., software_version: _Optional[str] = ..., plan_digest: _Optional[bytes] = ..., approval: _Optional[bytes] = ..., certificate_binding: _Optional[bytes] = ..., session: _Optional[bytes] = ...) -> None: ...

class UploadStart(_message.Message):
    __slots__ = ("sum_number", "length", "sha256")
    SUM_NUMBER_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    sum_number: int
    length: int
    sha256: bytes
    def __init__(self, sum_number: _Optional[int] = ..., length: _Optional[int] = ..., sha256: _Optional[bytes] = ...) -> None: ...

class Abstain(_message.Message):
    __slots__ = ("sum_number", "reason", "leaving")
    SUM_NUMBER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    sum_number: int
    reason: str
    leaving: bool
    def __init__(self, sum_number: _Optional[int] = ..., reason: _Optional[str] = ..., leaving: _Optional[bool] = ...) -> None: ...

class AggregatorFrame(_message.Message):
    __slots__ = ("welcome", "broadcast", "chunk", "sum", "accepted", "finished", "refused", "masked")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    BROADCAST_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    SUM_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    MASKED_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    broadcast: BroadcastStart
    chunk: Chunk
    sum: SumStart
    accepted: Accepted
    finished: Finished
    refused: Refused
    masked: SecaggMessage
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., broadcast: _Optional[_Union[BroadcastStart, _Mapping]] = ..., chunk: _Optional[_Union[Chunk, _Mapping]] = ..., sum: _Optional[_Union[SumStart, _Mapping]] = ..., accepted: _Optional[_Union[Accepted, _Mapping]] = ..., finished: _Optional[_Union[Finished, _Mapping]] = ..., refused: _Optional[_Union[Refused, _Mapping]] = ..., masked: _Optional[_Union[SecaggMessage, _Mapping]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("run_id", "rounds_done", "rounds_total", "evaluation_only")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_DONE_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    EVALUATION_ONLY_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    rounds_done: int
    rounds_total: int
    evaluation_only: bool
    def __init__(self, run_id: _Optional[str] = ..., rounds_done: _Optional[int] = ..., rounds_total: _Optional[int] = ..., evaluation_only: _Optional[bool] = ...) -> None: ...

class BroadcastStart(_message.Message):
    __slots__ = ("kind", "length", "sha256", "threshold")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[BroadcastStart.Kind]
        KIND_MODEL: _ClassVar[BroadcastStart.Kind]
        KIND_FEATURE_SCALING: _ClassVar[BroadcastStart.Kind]
    KIND_UNSPECIFIED: BroadcastStart.Kind
    KIND_MODEL: BroadcastStart.Kind
    KIND_FEATURE_SCALING: BroadcastStart.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    kind: BroadcastStart.Kind
    length: int
    sha256: bytes
    threshold: float
    def __init__(self, kind: _Optional[_Union[BroadcastStart.Kind, str]] = ..., length: _Optional[int] = ..., sha256: _Optional[bytes] = ..., threshold: _Optional[float] = ...) -> None: ...

class SumStart(_message.Message):
    __slots__ = ("sum_number", "purpose", "round", "attempt", "model_sha256", "deadline_seconds", "query_step", "prefixes")
    class Purpose(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PURPOSE_UNSPECIFIED: _ClassVar[SumStart.Purpose]
        PURPOSE_TRAINING: _ClassVar[SumStart.Purpose]
        PURPOSE_EVALUATION: _ClassVar[SumStart.Purpose]
        PURPOSE_STANDARDISATION: _ClassVar[SumStart.Purpose]
        PURPOSE_EXACT_EVALUATION: _ClassVar[SumStart.Purpose]
    PURPOSE_UNSPECIFIED: SumStart.Purpose
    PURPOSE_TRAINING: SumStart.Purpose
    PURPOSE_EVALUATION: SumStart.Purpose
    PURPOSE_STANDARDISATION: SumStart.Purpose
    PURPOSE_EXACT_EVALUATION: SumStart.Purpose
    SUM_NUMBER_FIELD_NUMBER: _ClassVar[int]
    PURPOSE_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    MODEL_SHA256_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    QUERY_STEP_FIELD_NUMBER: _ClassVar[int]
    PREFIXES_FIELD_NUMBER: _ClassVar[int]
    sum_number: int
    purpose: SumStart.Purpose
    round: int
    attempt: int
    model_sha256: bytes
    deadline_seconds: int
    query_step: int
    prefixes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, sum_number: _Optional[int] = ..., purpose: _Optional[_Union[SumStart.Purpose, str]] = ..., round: _Optional[int] = ..., attempt: _Optional[int] = ..., model_sha256: _Optional[bytes] = ..., deadline_seconds: _Optional[int] = ..., query_step: _Optional[int] = ..., prefixes: _Optional[_Iterable[int]] = ...) -> None: ...

class Accepted(_message.Message):
    __slots__ = ("sum_number",)
    SUM_NUMBER_FIELD_NUMBER: _ClassVar[int]
    sum_number: int
    def __init__(self, sum_number: _Optional[int] = ...) -> None: ...

class Finished(_message.Message):
    __slots__ = ("rounds", "outcome")
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    rounds: int
    outcome: str
    def __init__(self, rounds: _Optional[int] = ..., outcome: _Optional[str] = ...) -> None: ...

class Refused(_message.Message):
    __slots__ = ("reason", "remedy", "try_again")
    REASON_FIELD_NUMBER: _ClassVar[int]
    REMEDY_FIELD_NUMBER: _ClassVar[int]
    TRY_AGAIN_FIELD_NUMBER: _ClassVar[int]
    reason: str
    remedy: str
    try_again: bool
    def __init__(self, reason: _Optional[str] = ..., remedy: _Optional[str] = ..., try_again: _Optional[bool] = ...) -> None: ...

class SecaggMessage(_message.Message):
    __slots__ = ("message", "vector_length")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    VECTOR_LENGTH_FIELD_NUMBER: _ClassVar[int]
    message: bytes
    vector_length: int
    def __init__(self, message: _Optional[bytes] = ..., vector_length: _Optional[int] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class CheckRequest(_message.Message):
    __slots__ = ("protocol_version", "software_version", "plan_digest", "approval", "certificate_binding", "clock_seconds")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_VERSION_FIELD_NUMBER: _ClassVar[int]
    PLAN_DIGEST_FIELD_NUMBER: _ClassVar[int]
    APPROVAL_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_BINDING_FIELD_NUMBER: _ClassVar[int]
    CLOCK_SECONDS_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    software_version: str
    plan_digest: bytes
    approval: bytes
    certificate_binding: bytes
    clock_seconds: float
    def __init__(self, protocol_version: _Optional[int] = ..., software_version: _Optional[str] = ..., plan_digest: _Optional[bytes] = ..., approval: _Optional[bytes] = ..., certificate_binding: _Optional[bytes] = ..., clock_seconds: _Optional[float] = ...) -> None: ...

class CheckReply(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[CheckItem]
    def __init__(self, items: _Optional[_Iterable[_Union[CheckItem, _Mapping]]] = ...) -> None: ...

class CheckItem(_message.Message):
    __slots__ = ("name", "passed", "detail")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PASSED_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    name: str
    passed: bool
    detail: str
    def __init__(self, name: _Optional[str] = ..., passed: _Optional[bool] = ..., detail: _Optional[str] = ...) -> None: ...
