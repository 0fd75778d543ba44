"""gRPC calls through a proxy, with trailers, to a server that ends its connections by GOAWAY all the time.

usage: calls.py LISTEN_PORT PROXY_PORT CALLS

Unary calls in parallel, each with a trailer of its own to bring back, then one streaming call in both directions and one
that ends with a status. Messages are bytes, so that no protobuf is needed. Status 1 if any fails.
"""

import collections
import concurrent.futures
import sys

import grpc

PARALLEL = 8
# A connection gets a GOAWAY after this long, with what is on it to be finished: every few calls.
CONNECTION_AGE_MS = 50


def echo(request, context):
    context.set_trailing_metadata((("x-seen", request.decode()),))
    return request


def stream(requests, context):
    for request in requests:
        yield request
    context.set_trailing_metadata((("x-seen", "all"),))


def refuse(request, context):
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not now")


def server(port):
    handlers = {
        "Echo": grpc.unary_unary_rpc_method_handler(echo),
        "Stream": grpc.stream_stream_rpc_method_handler(stream),
        "Refuse": grpc.unary_unary_rpc_method_handler(refuse),
    }
    options = [("grpc.max_connection_age_ms", CONNECTION_AGE_MS), ("grpc.max_connection_age_grace_ms", 30_000)]
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(PARALLEL), options=options)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("shop.Catalog", handlers),))
    assert server.add_insecure_port(f"127.0.0.1:{port}"), "the port is taken"
    server.start()
    return server


def one(call, number):
    sent = f"call {number}".encode()
    reply, info = call.with_call(sent, timeout=60)
    assert reply == sent, reply
    assert ("x-seen", sent.decode()) in [(key, value) for key, value in info.trailing_metadata()]


def main(listen, proxy, calls):
    running = server(listen)
    failed = collections.Counter()
    with grpc.insecure_channel(f"127.0.0.1:{proxy}") as channel:
        unary = channel.unary_unary("/shop.Catalog/Echo")
        with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
            for future in concurrent.futures.as_completed([pool.submit(one, unary, n) for n in range(calls)]):
                if future.exception():
                    failed[str(future.exception())] += 1
        messages = [f"message {number}".encode() for number in range(100)]
        streamed = channel.stream_stream("/shop.Catalog/Stream")(iter(messages), timeout=60)
        if list(streamed) != messages or ("x-seen", "all") not in [(k, v) for k, v in streamed.trailing_metadata()]:
            failed["the streaming call"] += 1
        try:
            channel.unary_unary("/shop.Catalog/Refuse")(b"", timeout=60)
            failed["a refused call returned"] += 1
        except grpc.RpcError as error:
            if (error.code(), error.details()) != (grpc.StatusCode.FAILED_PRECONDITION, "not now"):
                failed[f"a refused call ended with {error.code()} {error.details()}"] += 1
    running.stop(0)
    for error, count in failed.most_common():
        print(f"{count} x {error}")
    print(f"{calls} unary calls, a streaming one and a refused one: {sum(failed.values())} failed")
    return 1 if failed else 0


sys.exit(main(*map(int, sys.argv[1:4])))
