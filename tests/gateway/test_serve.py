"""What holds for every connection, asked of the kernel: to see it happen would take a minute."""

import socket
import sys

import pytest

from gateway.app.serve import UNREAD_SECONDS, listen


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends such connections by itself")
def test_http_write_timeout_disconnects_after_a_minute() -> None:
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == UNREAD_SECONDS * 1000
