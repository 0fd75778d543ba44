"""Short WebSocket tunnels through a proxy, to a server that speaks at once after its 101.

usage: tunnels.py LISTEN_PORT PROXY_PORT TUNNELS

Each tunnel reads the server's first word, sends one message, reads it back and closes. Status 1 if any breaks.
"""

import asyncio
import collections
import sys

from websockets.asyncio.client import connect
from websockets.asyncio.server import serve

PARALLEL = 20


async def server(connection):
    await connection.send("welcome")
    async for message in connection:
        await connection.send(message)


async def tunnel(url, number):
    async with connect(url, compression=None, open_timeout=30) as connection:
        assert await connection.recv() == "welcome"
        await connection.send(f"message {number}")
        assert await connection.recv() == f"message {number}"


async def worker(url, numbers, broken):
    for number in numbers:
        try:
            await asyncio.wait_for(tunnel(url, number), 60)
        except Exception as error:
            broken[f"{type(error).__name__}: {error}"] += 1


async def main(listen, proxy, tunnels):
    broken = collections.Counter()
    numbers = iter(range(tunnels))
    async with serve(server, "127.0.0.1", listen, compression=None):
        url = f"ws://127.0.0.1:{proxy}/tunnel"
        await asyncio.gather(*(worker(url, numbers, broken) for _ in range(PARALLEL)))
    for error, count in broken.most_common():
        print(f"{count} x {error}")
    print(f"{tunnels} tunnels, {sum(broken.values())} broken")
    return 1 if broken else 0


sys.exit(asyncio.run(main(*map(int, sys.argv[1:4]))))
