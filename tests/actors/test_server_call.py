"""What gRPC's server logs by itself, and what of it an operator reads."""

from __future__ import annotations

import asyncio
import logging

import grpc
import pytest
from grpc._cython import cygrpc

from aggregator.server_call import lost_statuses_unlogged

METHOD = "/fedfair.test/Fail"


def fail_by(error: Exception) -> None:
    """Serve one call whose handler raises an error, as gRPC does where its core takes no status any more."""

    async def handler(_request: bytes, _context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        raise error

    async def calling() -> None:
        server = grpc.aio.server()
        service, name = METHOD[1:].split("/")
        method = grpc.unary_unary_rpc_method_handler(handler)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {name: method}),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await channel.unary_unary(METHOD)(b"", timeout=2.0)
        await server.stop(0)

    asyncio.run(calling())


def lost_status() -> Exception:
    error: Exception = cygrpc.ExecuteBatchError('Failed "execute_batch": (SendStatusFromServerOperation,)')
    return error


def test_a_peer_that_has_gone_before_its_status_is_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), lost_statuses_unlogged():
        fail_by(lost_status())
    assert [record.message for record in caplog.records if record.exc_info] == []


def test_a_call_that_a_stop_cancels_is_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), lost_statuses_unlogged():
        logging.getLogger("grpc._cython.cygrpc").error("a call", exc_info=asyncio.CancelledError())
    assert [record.message for record in caplog.records if record.exc_info] == []


def test_an_error_of_a_handler_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), lost_statuses_unlogged():
        fail_by(ZeroDivisionError("ours"))
    [logged] = [record for record in caplog.records if record.exc_info]
    assert logged.exc_info is not None
    assert isinstance(logged.exc_info[1], ZeroDivisionError)


def test_afterwards_the_log_is_as_it_was(caplog: pytest.LogCaptureFixture) -> None:
    with lost_statuses_unlogged():
        pass
    with caplog.at_level(logging.DEBUG):
        fail_by(lost_status())
    assert [type(record.exc_info[1]) for record in caplog.records if record.exc_info] == [cygrpc.ExecuteBatchError]
