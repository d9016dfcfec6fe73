"""The port between its check and the first answer: taken, and not yet open."""

from __future__ import annotations

import os
import socket

import pytest
from circus.sockets import CircusSocket

from gliner_bento.process.port import allow_next_server, check_port, listen_when_ready, refuse_connections
from gliner_bento.settings.configuration import SettingsError

HOST = "127.0.0.1"


@pytest.fixture
def bound(monkeypatch):
    """A socket as circus opens it for a process that is starting, and its port."""
    monkeypatch.setattr(CircusSocket, "listen", CircusSocket.listen)  # restored after the test
    listen_when_ready()
    with CircusSocket(host=HOST, port=0) as opened:
        opened.bind_and_listen()
        yield opened, opened.getsockname()[1]


def test_connections_are_refused_until_the_process_listens(bound):
    opened, port = bound
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, port))
    with socket.socket(fileno=socket.dup(opened.fileno())) as inherited:
        inherited.listen()
        socket.create_connection((HOST, port)).close()


def test_the_port_of_a_server_that_is_starting_is_taken(bound):
    _, port = bound
    with pytest.raises(SettingsError, match=f"port {port} on {HOST}: Address already in use"):
        check_port(HOST, port)


def test_a_port_is_free_again_after_connections_to_it_and_the_next_server_listens(bound):
    """Also while connections that the server has closed are in TIME_WAIT."""
    opened, port = bound
    with socket.socket(fileno=socket.dup(opened.fileno())) as inherited:
        allow_next_server()
        inherited.listen()
        with socket.create_connection((HOST, port)) as client:
            inherited.accept()[0].close()
            assert client.recv(1) == b""
        with pytest.raises(SettingsError, match="Address already in use"):
            check_port(HOST, port)
    opened.close()
    check_port(HOST, port)
    with CircusSocket(host=HOST, port=port) as following:
        following.bind_and_listen()
        allow_next_server()
        with socket.socket(fileno=socket.dup(following.fileno())) as inherited:
            inherited.listen()
            socket.create_connection((HOST, port)).close()


def test_looking_for_sockets_leaves_descriptors_as_they_are(bound):
    reader, writer = os.pipe()
    before = os.listdir("/dev/fd")
    allow_next_server()
    refuse_connections(1)
    assert os.listdir("/dev/fd") == before
    os.close(writer)
    assert os.read(reader, 1) == b""  # nobody else holds the end
    os.close(reader)
