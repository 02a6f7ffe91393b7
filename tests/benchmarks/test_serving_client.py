"""The open-loop client of ``benchmarks.serving``: counts and times of a server of its own."""

import asyncio
from contextlib import suppress

from benchmarks.serving.client import Client


async def serve(requests):
    """Run a client against a server that rejects every fourth request and takes 50 ms."""
    count = 0

    async def connected(reader, writer):
        nonlocal count
        with suppress(asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                body = await reader.readexactly(2)
                count += 1
                status = b"503 Busy" if count % 4 == 0 else b"200 OK"
                await asyncio.sleep(0.05)
                writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 2\r\n\r\n" + body)
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    client = Client([b"POST / HTTP/1.1\r\n\r\n{}"], 400, requests / 400)
    load = await client.run(server.sockets[0].getsockname()[1])
    while len(asyncio.all_tasks()) > 1:
        await asyncio.sleep(0.01)
    server.close()
    return load


def test_loads_count_responses_and_time_them_from_when_they_were_due():
    load = asyncio.run(serve(80))
    assert (load.rejected, load.failed) == (20, 0)
    assert load.median_ms >= 50
    assert 0 < load.throughput <= 60 / (80 / 400)
