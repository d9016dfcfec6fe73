"""Work for a caller that has gone is stopped; work for one that waits is not touched."""

import asyncio
import contextlib

import pytest

from gliner_bento.http.disconnect import LEFT, CancelOnDisconnect


class Connection:
    """One request whose client sends `body` and disconnects when the test calls `hang_up`. tells_loss: whether the
    server sets `LEFT`."""

    tells_loss = False

    def __init__(self) -> None:
        self.hung_up = asyncio.Event()
        self._lost = asyncio.get_running_loop().create_future()
        self.scope = {"type": "http"} | ({LEFT: self._lost} if self.tells_loss else {})
        self.answer: list[dict] = []
        self._messages = [{"type": "http.request", "body": b"a", "more_body": True}, {"type": "http.request"}]

    async def receive(self):
        if self._messages:
            return self._messages.pop(0)
        await self.hung_up.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        self.answer.append(message)

    def hang_up(self):
        self.hung_up.set()
        self._lost.set_result(None)


@pytest.fixture(params=[False, True], ids=["", "left"], autouse=True)
def servers(request, monkeypatch):
    monkeypatch.setattr(Connection, "tells_loss", request.param)


async def read_body(receive) -> None:
    while (await receive()).get("more_body"):
        pass


def serve(app, connection):
    return CancelOnDisconnect(app)(connection.scope, connection.receive, connection.send)


def waiting(connection, cancelled, error=asyncio.CancelledError):
    """An app whose caller hangs up while it waits. It notes that it was cancelled, and raises `error`."""

    async def app(scope, receive, send):
        await read_body(receive)
        connection.hang_up()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise error from None

    return app


def test_a_request_is_cancelled_when_its_caller_has_gone():
    async def scene():
        connection, cancelled = Connection(), []
        await asyncio.wait_for(serve(waiting(connection, cancelled), connection), 10)
        assert cancelled
        assert connection.answer[0]["status"] == 499

    asyncio.run(scene())


@pytest.mark.parametrize("error", [asyncio.CancelledError, ConnectionError])
def test_the_task_of_a_cancelled_request_continues(error):
    async def scene():
        connection, task = Connection(), asyncio.current_task()
        with contextlib.suppress(ConnectionError):
            await serve(waiting(connection, [], error), connection)
        await asyncio.sleep(0)
        assert not getattr(task, "cancelling", bool)()  # from Python 3.11
        assert asyncio.all_tasks() == {task}

    asyncio.run(scene())


def test_a_client_in_the_same_event_loop_leaves_time_to_other_tasks():
    async def scene():
        async def app(scope, receive, send):
            await read_body(receive)

        other = asyncio.create_task(asyncio.sleep(0))
        for _ in range(10):
            connection = Connection()
            connection.scope.pop(LEFT, None)  # only a server with connections sets it
            await serve(app, connection)
        assert other.done()

    asyncio.run(scene())


def test_an_answer_that_has_begun_gets_no_second_one():
    async def scene():
        connection = Connection()

        async def app(scope, receive, send):
            await read_body(receive)
            await send({"type": "http.response.start", "status": 200})
            connection.hang_up()
            await asyncio.Event().wait()

        await asyncio.wait_for(serve(app, connection), 10)
        assert connection.answer == [{"type": "http.response.start", "status": 200}]

    asyncio.run(scene())


def test_a_request_is_answered_while_its_caller_waits():
    async def scene():
        connection = Connection()

        async def app(scope, receive, send):
            await read_body(receive)
            await asyncio.sleep(0)
            await send({"type": "http.response.start", "status": 200})

        await asyncio.wait_for(serve(app, connection), 10)
        assert connection.answer == [{"type": "http.response.start", "status": 200}]

    asyncio.run(scene())


def test_a_fault_passes_through():
    async def scene():
        async def app(scope, receive, send):
            await read_body(receive)
            raise ValueError("broken")

        with pytest.raises(ValueError, match="broken"):
            await asyncio.wait_for(serve(app, Connection()), 10)

    asyncio.run(scene())


def test_a_body_that_is_never_read_does_not_keep_the_answer_waiting():
    async def scene():
        connection = Connection()

        async def app(scope, receive, send):
            await send({"type": "http.response.start", "status": 404})

        await asyncio.wait_for(serve(app, connection), 10)
        assert connection.answer

    asyncio.run(scene())


def test_work_after_the_answer_is_not_cancelled():
    """A connection counts as closed once it is answered; background work continues."""

    async def scene():
        connection, finished = Connection(), asyncio.Event()

        async def app(scope, receive, send):
            await read_body(receive)
            await send({"type": "http.response.start", "status": 200})
            await send({"type": "http.response.body", "body": b""})
            connection.hang_up()
            for _ in range(10):
                await asyncio.sleep(0)
            finished.set()

        await asyncio.wait_for(serve(app, connection), 10)
        assert finished.is_set()

    asyncio.run(scene())


def test_a_server_that_stops_a_request_stops_its_work_too():
    async def scene():
        started, cancelled = asyncio.Event(), asyncio.Event()

        async def app(scope, receive, send):
            started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise

        request = asyncio.create_task(serve(app, Connection()))
        await started.wait()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        assert cancelled.is_set()

    asyncio.run(scene())
