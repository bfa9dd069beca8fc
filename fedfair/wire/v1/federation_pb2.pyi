from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CollaboratorFrame(_message.Message):
    __slots__ = ("hello", "upload", "chunk", "abstain", "masked", "ended", "witnessed")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    ABSTAIN_FIELD_NUMBER: _ClassVar[int]
    MASKED_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    WITNESSED_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    upload: UploadStart
    chunk: Chunk
    abstain: Abstain
    masked: SecaggMessage
    ended: Ended
    witnessed: Witnessed
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., upload: _Optional[_Union[UploadStart, _Mapping]] = ..., chunk: _Optional[_Union[Chunk, _Mapping]] = ..., abstain: _Optional[_Union[Abstain, _Mapping]] = ..., masked: _Optional[_Union[SecaggMessage, _Mapping]] = ..., ended: _Optional[_Union[Ended, _Mapping]] = ..., witnessed: _Optional[_Union[Witnessed, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol_version", "software_version", "plan_digest", "approval", "certificate_binding", "session", "last_sum_number", "run_id", "rounds_done", "state")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_VERSION_FIELD_NUMBER: _ClassVar[int]
    PLAN_DIGEST_FIELD_NUMBER: _ClassVar[int]
    APPROVAL_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_BINDING_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    LAST_SUM_NUMBER_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_DONE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    software_version: str
    plan_digest: bytes
    approval: bytes
    certificate_binding: bytes
    session: bytes
    last_sum_number: int
    run_id: str
    rounds_done: int
    state: bytes
    def __init__(self, protocol_version: _Optional[int] = ..., software_version: _Optional[str] = ..., plan_digest: _Optional[bytes] = ..., approval: _Optional[bytes] = ..., certificate_binding: _Optional[bytes] = ..., session: _Optional[bytes] = ..., last_sum_number: _Optional[int] = ..., run_id: _Optional[str] = ..., rounds_done: _Optional[int] = ..., state: _Optional[bytes] = ...) -> None: ...

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
    __slots__ = ("sum_number", "reason", "leaving", "accused")
    class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        REASON_UNSPECIFIED: _ClassVar[Abstain.Reason]
        REASON_PLAN_EVALUATION: _ClassVar[Abstain.Reason]
        REASON_PLAN_STANDARDISATION: _ClassVar[Abstain.Reason]
        REASON_EXACT_QUERY: _ClassVar[Abstain.Reason]
        REASON_BUDGET: _ClassVar[Abstain.Reason]
        REASON_VALUES: _ClassVar[Abstain.Reason]
        REASON_PROTOCOL: _ClassVar[Abstain.Reason]
        REASON_POLICY: _ClassVar[Abstain.Reason]
        REASON_POLICY_ALLOW_PLAIN_SUMS: _ClassVar[Abstain.Reason]
        REASON_POLICY_ALLOW_MODULE_CODE: _ClassVar[Abstain.Reason]
        REASON_POLICY_MODULE_CODE: _ClassVar[Abstain.Reason]
        REASON_POLICY_ALGORITHMS: _ClassVar[Abstain.Reason]
        REASON_POLICY_REVEALS: _ClassVar[Abstain.Reason]
        REASON_POLICY_PUBLISH_SITE_MEANS: _ClassVar[Abstain.Reason]
        REASON_POLICY_MAX_ROUNDS: _ClassVar[Abstain.Reason]
        REASON_POLICY_MAX_RUNS: _ClassVar[Abstain.Reason]
        REASON_POLICY_EVALUATION_COHORT: _ClassVar[Abstain.Reason]
        REASON_POLICY_MAX_EVALUATIONS: _ClassVar[Abstain.Reason]
        REASON_POLICY_MAX_EVALUATIONS_ON_DEMAND: _ClassVar[Abstain.Reason]
        REASON_POLICY_MIN_COLLABORATORS: _ClassVar[Abstain.Reason]
        REASON_POLICY_MODE: _ClassVar[Abstain.Reason]
        REASON_POLICY_COLLUDERS: _ClassVar[Abstain.Reason]
        REASON_POLICY_KEY_AGREEMENT: _ClassVar[Abstain.Reason]
        REASON_POLICY_RING_BITS: _ClassVar[Abstain.Reason]
        REASON_POLICY_MAX_CLIP: _ClassVar[Abstain.Reason]
        REASON_POLICY_MAX_ATTEMPTS: _ClassVar[Abstain.Reason]
        REASON_POLICY_PURPOSES: _ClassVar[Abstain.Reason]
        REASON_POLICY_TRAINING_COHORT: _ClassVar[Abstain.Reason]
        REASON_SECAGG: _ClassVar[Abstain.Reason]
        REASON_SECAGG_ENCODING: _ClassVar[Abstain.Reason]
        REASON_SECAGG_POLICY: _ClassVar[Abstain.Reason]
        REASON_SECAGG_PLAN: _ClassVar[Abstain.Reason]
        REASON_SECAGG_LAYOUT: _ClassVar[Abstain.Reason]
        REASON_SECAGG_MEMBERSHIP: _ClassVar[Abstain.Reason]
        REASON_SECAGG_SIGNATURE: _ClassVar[Abstain.Reason]
        REASON_SECAGG_OWN_ADVERT: _ClassVar[Abstain.Reason]
        REASON_SECAGG_KEY: _ClassVar[Abstain.Reason]
        REASON_SECAGG_CONFIRM: _ClassVar[Abstain.Reason]
        REASON_SECAGG_SESSION: _ClassVar[Abstain.Reason]
        REASON_SECAGG_ROUND_ORDER: _ClassVar[Abstain.Reason]
        REASON_SECAGG_SESSION_EXPIRED: _ClassVar[Abstain.Reason]
        REASON_SECAGG_STATE: _ClassVar[Abstain.Reason]
        REASON_SECAGG_REQUEST: _ClassVar[Abstain.Reason]
        REASON_SECAGG_COHORT: _ClassVar[Abstain.Reason]
        REASON_SECAGG_THRESHOLD: _ClassVar[Abstain.Reason]
        REASON_SECAGG_ATTEMPTS: _ClassVar[Abstain.Reason]
        REASON_SECAGG_TRANSCRIPT: _ClassVar[Abstain.Reason]
        REASON_SECAGG_OUT_OF_ORDER: _ClassVar[Abstain.Reason]
        REASON_SECAGG_ONE_VOTE: _ClassVar[Abstain.Reason]
        REASON_SECAGG_ONE_ANSWER: _ClassVar[Abstain.Reason]
        REASON_SECAGG_SURVIVORS: _ClassVar[Abstain.Reason]
        REASON_SECAGG_VOTES: _ClassVar[Abstain.Reason]
        REASON_SECAGG_ENVELOPE: _ClassVar[Abstain.Reason]
        REASON_SECAGG_REUSED_UPDATE: _ClassVar[Abstain.Reason]
        REASON_SECAGG_VECTOR: _ClassVar[Abstain.Reason]
        REASON_SECAGG_TAG: _ClassVar[Abstain.Reason]
        REASON_SECAGG_COMMITMENT: _ClassVar[Abstain.Reason]
        REASON_SECAGG_SHARE: _ClassVar[Abstain.Reason]
        REASON_SECAGG_DUPLICATE: _ClassVar[Abstain.Reason]
        REASON_SECAGG_LATE: _ClassVar[Abstain.Reason]
        REASON_SECAGG_PLAUSIBILITY: _ClassVar[Abstain.Reason]
        REASON_SECAGG_SUM: _ClassVar[Abstain.Reason]
        REASON_POLICY_MAX_REOPENED_SUMS: _ClassVar[Abstain.Reason]
        REASON_OWN_STATE: _ClassVar[Abstain.Reason]
        REASON_PLAN_SURVEY: _ClassVar[Abstain.Reason]
        REASON_SURVEY: _ClassVar[Abstain.Reason]
        REASON_POLICY_INITIAL_WEIGHTS: _ClassVar[Abstain.Reason]
        REASON_POLICY_EARLIER_COHORT: _ClassVar[Abstain.Reason]
        REASON_POLICY_ROWS: _ClassVar[Abstain.Reason]
        REASON_POLICY_MAX_BINS: _ClassVar[Abstain.Reason]
        REASON_POLICY_MAX_BINS_PER_RECORD: _ClassVar[Abstain.Reason]
        REASON_POLICY_ALL_PLANS: _ClassVar[Abstain.Reason]
        REASON_POLICY_RELEASE: _ClassVar[Abstain.Reason]
    REASON_UNSPECIFIED: Abstain.Reason
    REASON_PLAN_EVALUATION: Abstain.Reason
    REASON_PLAN_STANDARDISATION: Abstain.Reason
    REASON_EXACT_QUERY: Abstain.Reason
    REASON_BUDGET: Abstain.Reason
    REASON_VALUES: Abstain.Reason
    REASON_PROTOCOL: Abstain.Reason
    REASON_POLICY: Abstain.Reason
    REASON_POLICY_ALLOW_PLAIN_SUMS: Abstain.Reason
    REASON_POLICY_ALLOW_MODULE_CODE: Abstain.Reason
    REASON_POLICY_MODULE_CODE: Abstain.Reason
    REASON_POLICY_ALGORITHMS: Abstain.Reason
    REASON_POLICY_REVEALS: Abstain.Reason
    REASON_POLICY_PUBLISH_SITE_MEANS: Abstain.Reason
    REASON_POLICY_MAX_ROUNDS: Abstain.Reason
    REASON_POLICY_MAX_RUNS: Abstain.Reason
    REASON_POLICY_EVALUATION_COHORT: Abstain.Reason
    REASON_POLICY_MAX_EVALUATIONS: Abstain.Reason
    REASON_POLICY_MAX_EVALUATIONS_ON_DEMAND: Abstain.Reason
    REASON_POLICY_MIN_COLLABORATORS: Abstain.Reason
    REASON_POLICY_MODE: Abstain.Reason
    REASON_POLICY_COLLUDERS: Abstain.Reason
    REASON_POLICY_KEY_AGREEMENT: Abstain.Reason
    REASON_POLICY_RING_BITS: Abstain.Reason
    REASON_POLICY_MAX_CLIP: Abstain.Reason
    REASON_POLICY_MAX_ATTEMPTS: Abstain.Reason
    REASON_POLICY_PURPOSES: Abstain.Reason
    REASON_POLICY_TRAINING_COHORT: Abstain.Reason
    REASON_SECAGG: Abstain.Reason
    REASON_SECAGG_ENCODING: Abstain.Reason
    REASON_SECAGG_POLICY: Abstain.Reason
    REASON_SECAGG_PLAN: Abstain.Reason
    REASON_SECAGG_LAYOUT: Abstain.Reason
    REASON_SECAGG_MEMBERSHIP: Abstain.Reason
    REASON_SECAGG_SIGNATURE: Abstain.Reason
    REASON_SECAGG_OWN_ADVERT: Abstain.Reason
    REASON_SECAGG_KEY: Abstain.Reason
    REASON_SECAGG_CONFIRM: Abstain.Reason
    REASON_SECAGG_SESSION: Abstain.Reason
    REASON_SECAGG_ROUND_ORDER: Abstain.Reason
    REASON_SECAGG_SESSION_EXPIRED: Abstain.Reason
    REASON_SECAGG_STATE: Abstain.Reason
    REASON_SECAGG_REQUEST: Abstain.Reason
    REASON_SECAGG_COHORT: Abstain.Reason
    REASON_SECAGG_THRESHOLD: Abstain.Reason
    REASON_SECAGG_ATTEMPTS: Abstain.Reason
    REASON_SECAGG_TRANSCRIPT: Abstain.Reason
    REASON_SECAGG_OUT_OF_ORDER: Abstain.Reason
    REASON_SECAGG_ONE_VOTE: Abstain.Reason
    REASON_SECAGG_ONE_ANSWER: Abstain.Reason
    REASON_SECAGG_SURVIVORS: Abstain.Reason
    REASON_SECAGG_VOTES: Abstain.Reason
    REASON_SECAGG_ENVELOPE: Abstain.Reason
    REASON_SECAGG_REUSED_UPDATE: Abstain.Reason
    REASON_SECAGG_VECTOR: Abstain.Reason
    REASON_SECAGG_TAG: Abstain.Reason
    REASON_SECAGG_COMMITMENT: Abstain.Reason
    REASON_SECAGG_SHARE: Abstain.Reason
    REASON_SECAGG_DUPLICATE: Abstain.Reason
    REASON_SECAGG_LATE: Abstain.Reason
    REASON_SECAGG_PLAUSIBILITY: Abstain.Reason
    REASON_SECAGG_SUM: Abstain.Reason
    REASON_POLICY_MAX_REOPENED_SUMS: Abstain.Reason
    REASON_OWN_STATE: Abstain.Reason
    REASON_PLAN_SURVEY: Abstain.Reason
    REASON_SURVEY: Abstain.Reason
    REASON_POLICY_INITIAL_WEIGHTS: Abstain.Reason
    REASON_POLICY_EARLIER_COHORT: Abstain.Reason
    REASON_POLICY_ROWS: Abstain.Reason
    REASON_POLICY_MAX_BINS: Abstain.Reason
    REASON_POLICY_MAX_BINS_PER_RECORD: Abstain.Reason
    REASON_POLICY_ALL_PLANS: Abstain.Reason
    REASON_POLICY_RELEASE: Abstain.Reason
    SUM_NUMBER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    ACCUSED_FIELD_NUMBER: _ClassVar[int]
    sum_number: int
    reason: Abstain.Reason
    leaving: bool
    accused: int
    def __init__(self, sum_number: _Optional[int] = ..., reason: _Optional[_Union[Abstain.Reason, str]] = ..., leaving: bool = ..., accused: _Optional[int] = ...) -> None: ...

class Ended(_message.Message):
    __slots__ = ("state", "statement")
    STATE_FIELD_NUMBER: _ClassVar[int]
    STATEMENT_FIELD_NUMBER: _ClassVar[int]
    state: bytes
    statement: bytes
    def __init__(self, state: _Optional[bytes] = ..., statement: _Optional[bytes] = ...) -> None: ...

class Witnessed(_message.Message):
    __slots__ = ("statement",)
    STATEMENT_FIELD_NUMBER: _ClassVar[int]
    statement: bytes
    def __init__(self, statement: _Optional[bytes] = ...) -> None: ...

class AggregatorFrame(_message.Message):
    __slots__ = ("welcome", "broadcast", "chunk", "sum", "accepted", "finished", "refused", "masked", "trust")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    BROADCAST_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    SUM_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    MASKED_FIELD_NUMBER: _ClassVar[int]
    TRUST_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    broadcast: BroadcastStart
    chunk: Chunk
    sum: SumStart
    accepted: Accepted
    finished: Finished
    refused: Refused
    masked: SecaggMessage
    trust: TrustUpdate
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., broadcast: _Optional[_Union[BroadcastStart, _Mapping]] = ..., chunk: _Optional[_Union[Chunk, _Mapping]] = ..., sum: _Optional[_Union[SumStart, _Mapping]] = ..., accepted: _Optional[_Union[Accepted, _Mapping]] = ..., finished: _Optional[_Union[Finished, _Mapping]] = ..., refused: _Optional[_Union[Refused, _Mapping]] = ..., masked: _Optional[_Union[SecaggMessage, _Mapping]] = ..., trust: _Optional[_Union[TrustUpdate, _Mapping]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("run_id", "rounds_done", "rounds_total", "evaluation_only", "model")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_DONE_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    EVALUATION_ONLY_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    rounds_done: int
    rounds_total: int
    evaluation_only: bool
    model: bytes
    def __init__(self, run_id: _Optional[str] = ..., rounds_done: _Optional[int] = ..., rounds_total: _Optional[int] = ..., evaluation_only: bool = ..., model: _Optional[bytes] = ...) -> None: ...

class BroadcastStart(_message.Message):
    __slots__ = ("kind", "length", "sha256")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[BroadcastStart.Kind]
        KIND_STATE: _ClassVar[BroadcastStart.Kind]
        KIND_TOTALS: _ClassVar[BroadcastStart.Kind]
    KIND_UNSPECIFIED: BroadcastStart.Kind
    KIND_STATE: BroadcastStart.Kind
    KIND_TOTALS: BroadcastStart.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    kind: BroadcastStart.Kind
    length: int
    sha256: bytes
    def __init__(self, kind: _Optional[_Union[BroadcastStart.Kind, str]] = ..., length: _Optional[int] = ..., sha256: _Optional[bytes] = ...) -> None: ...

class SumStart(_message.Message):
    __slots__ = ("sum_number", "purpose", "round", "attempt", "state", "deadline_seconds")
    class Purpose(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PURPOSE_UNSPECIFIED: _ClassVar[SumStart.Purpose]
        PURPOSE_TRAINING: _ClassVar[SumStart.Purpose]
        PURPOSE_EVALUATION: _ClassVar[SumStart.Purpose]
        PURPOSE_STANDARDISATION: _ClassVar[SumStart.Purpose]
        PURPOSE_EXACT_EVALUATION: _ClassVar[SumStart.Purpose]
        PURPOSE_SURVEY: _ClassVar[SumStart.Purpose]
        PURPOSE_REFERENCE: _ClassVar[SumStart.Purpose]
        PURPOSE_SLICES: _ClassVar[SumStart.Purpose]
        PURPOSE_COLUMN_STATISTICS: _ClassVar[SumStart.Purpose]
        PURPOSE_RELEASE_AUDIT: _ClassVar[SumStart.Purpose]
    PURPOSE_UNSPECIFIED: SumStart.Purpose
    PURPOSE_TRAINING: SumStart.Purpose
    PURPOSE_EVALUATION: SumStart.Purpose
    PURPOSE_STANDARDISATION: SumStart.Purpose
    PURPOSE_EXACT_EVALUATION: SumStart.Purpose
    PURPOSE_SURVEY: SumStart.Purpose
    PURPOSE_REFERENCE: SumStart.Purpose
    PURPOSE_SLICES: SumStart.Purpose
    PURPOSE_COLUMN_STATISTICS: SumStart.Purpose
    PURPOSE_RELEASE_AUDIT: SumStart.Purpose
    SUM_NUMBER_FIELD_NUMBER: _ClassVar[int]
    PURPOSE_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    sum_number: int
    purpose: SumStart.Purpose
    round: int
    attempt: int
    state: bytes
    deadline_seconds: int
    def __init__(self, sum_number: _Optional[int] = ..., purpose: _Optional[_Union[SumStart.Purpose, str]] = ..., round: _Optional[int] = ..., attempt: _Optional[int] = ..., state: _Optional[bytes] = ..., deadline_seconds: _Optional[int] = ...) -> None: ...

class TrustUpdate(_message.Message):
    __slots__ = ("revocation_list", "certificate")
    REVOCATION_LIST_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    revocation_list: bytes
    certificate: bytes
    def __init__(self, revocation_list: _Optional[bytes] = ..., certificate: _Optional[bytes] = ...) -> None: ...

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
    def __init__(self, reason: _Optional[str] = ..., remedy: _Optional[str] = ..., try_again: bool = ...) -> None: ...

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
    def __init__(self, name: _Optional[str] = ..., passed: bool = ..., detail: _Optional[str] = ...) -> None: ...
