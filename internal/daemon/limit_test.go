package daemon

import (
	"bufio"
	"net"
	"testing"
	"time"
)

// TestTooManyConnections verifies that connections beyond the limits are closed, and that closing a connection
// frees its slot.
func TestTooManyConnections(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := Limit(inner, 3, 2)
	defer l.Close()
	accepted := make(chan net.Conn, 8)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				close(accepted)
				return
			}
			_, _ = c.Write([]byte("hello\n"))
			accepted <- c
		}
	}()
	from := func(address string) bool {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
		c, err := dialer.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		line, _ := bufio.NewReader(c).ReadString('\n')
		return line == "hello\n"
	}
	greeted := func() bool { return from("127.0.0.1") }
	for range 2 {
		if !greeted() {
			t.Error("the first two connections were rejected")
		}
	}
	if greeted() {
		t.Error("a third connection was accepted")
	}
	c := <-accepted
	c.Close()
	c.Close() // must free the slot only once
	if !greeted() {
		t.Error("a connection was rejected after another one had been closed")
	}
	if greeted() {
		t.Error("two connections were accepted after one had been closed")
	}
	if !from("127.0.0.2") {
		t.Error("connections of one peer block another peer")
	}
	if from("127.0.0.3") {
		t.Error("a fourth connection was accepted")
	}
}
