package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/umbra-gpu/umbra/cmd/lab/proto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// guest is the other end of an agent's connection.
type guest struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Scanner
}

func pair(t *testing.T) (*Agent, *guest) {
	host, far := net.Pipe()
	a := newAgent(host)
	done := make(chan struct{})
	go func() { defer close(done); a.run() }()
	t.Cleanup(func() { far.Close(); <-done; host.Close() })
	return a, &guest{t: t, conn: far, r: bufio.NewScanner(far)}
}

func (g *guest) write(lines ...string) {
	_, err := g.conn.Write([]byte(strings.Join(lines, "\n") + "\n"))
	require.NoError(g.t, err)
}

func (g *guest) read() proto.Request {
	var r proto.Request
	require.True(g.t, g.r.Scan())
	require.NoError(g.t, json.Unmarshal(g.r.Bytes(), &r))
	return r
}

// call runs Call in a goroutine.
func call(ctx context.Context, a *Agent, cmd string, args, result any) <-chan error {
	done := make(chan error, 1)
	go func() { done <- a.Call(ctx, cmd, args, result) }()
	return done
}

func TestAgentCalls(t *testing.T) {
	a, g := pair(t)
	var one, two map[string]int
	first := call(t.Context(), a, "one", map[string]int{"x": 1}, &one)
	r1 := g.read()
	require.Equal(t, "one", r1.Cmd)
	require.JSONEq(t, `{"x":1}`, string(r1.Args))
	second := call(t.Context(), a, "two", nil, &two)
	r2 := g.read()
	require.NotEqual(t, r1.ID, r2.ID)
	require.Empty(t, r2.Args)

	// Replies in the other order, with noise around.
	g.write("SeaBIOS", `{"id":`, `[]`, fmt.Sprintf(`{"id":%d,"ok":true,"result":{"n":2}}`, r2.ID), `{"id":77,"ok":true}`)
	require.NoError(t, <-second)
	g.write(fmt.Sprintf(`{"id":%d,"ok":true,"result":{"n":1}}`, r1.ID))
	require.NoError(t, <-first)
	require.Equal(t, 1, one["n"])
	require.Equal(t, 2, two["n"])

	bad := call(t.Context(), a, "bad", nil, nil)
	g.write(fmt.Sprintf(`{"id":%d,"ok":false,"error":"no such command"}`, g.read().ID))
	var refused *CallError
	require.ErrorAs(t, <-bad, &refused)
	require.Equal(t, &CallError{Cmd: "bad", Message: "no such command"}, refused)

	odd := call(t.Context(), a, "odd", nil, &one)
	g.write(fmt.Sprintf(`{"id":%d,"ok":true,"result":"text"}`, g.read().ID))
	require.ErrorContains(t, <-odd, "odd")
}

func TestAgentReboot(t *testing.T) {
	a, g := pair(t)
	g.write(`{"event":"ready","data":{"kernel":"6.1","uptime":2.5}}`)
	ready, err := a.Ready(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, proto.Ready{Kernel: "6.1", Uptime: 2.5}, ready)
	pending := call(t.Context(), a, "wait", nil, nil)
	g.read()
	g.write(`{"event":"log"}`, `{"event":"ready"}`)
	require.ErrorIs(t, <-pending, ErrRebooted)
	_, err = a.Ready(t.Context(), 2)
	require.NoError(t, err)
	require.Equal(t, 2, a.Boots())
	require.Len(t, a.Events(), 3)
	e, next, err := a.WaitEvent(t.Context(), "log", 0)
	require.NoError(t, err)
	require.Equal(t, "log", e.Event)
	require.Equal(t, 2, next)
}

func TestAgentEnds(t *testing.T) {
	a, g := pair(t)
	pending := call(t.Context(), a, "wait", nil, nil)
	g.read()
	g.conn.Close()
	require.ErrorIs(t, <-pending, errEnded)
	_, err := a.Ready(t.Context(), 1)
	require.ErrorIs(t, err, errEnded)
	require.ErrorIs(t, a.Call(t.Context(), "late", nil, nil), errEnded)
}

// A guest that does not answer, or does not even read, delays a caller no longer than
// its deadline. After half a request the connection is unusable.
func TestAgentDeadline(t *testing.T) {
	a, g := pair(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, a.Call(ctx, "ignored", nil, nil), context.DeadlineExceeded, "nothing was read")
	ok := call(t.Context(), a, "again", nil, nil)
	g.write(fmt.Sprintf(`{"id":%d,"ok":true}`, g.read().ID))
	require.NoError(t, <-ok, "the line is whole")

	ctx, cancel = context.WithCancel(t.Context())
	half := call(ctx, a, "half", nil, nil)
	_, err := g.conn.Read(make([]byte, 4))
	require.NoError(t, err)
	cancel()
	require.Error(t, <-half)
	require.ErrorContains(t, a.Call(t.Context(), "more", nil, nil), "cut short")
}

func TestAgentLongLines(t *testing.T) {
	a, g := pair(t)
	big := strings.Repeat("x", proto.MaxLine)
	require.ErrorContains(t, a.Call(t.Context(), "big", big, nil), "bytes")
	var wg sync.WaitGroup
	wg.Go(func() { g.write(`{"event":"`+big+`"}`, `{"event":"after"}`) })
	done := make(chan error, 1)
	go func() {
		_, _, err := a.WaitEvent(t.Context(), "after", 0)
		done <- err
	}()
	require.NoError(t, <-done)
	wg.Wait()
	require.Len(t, a.Events(), 1, "the long line was dropped")
}

// A command is sent when the guest answers a ping, and an old reply does not answer
// it.
func TestCallSocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	_, err := CallSocket(t.Context(), socket, "ping", nil, time.Millisecond, io.Discard)
	require.ErrorContains(t, err, socket)
	done := make(chan struct{})
	go func() {
		defer close(done)
		time.Sleep(10 * time.Millisecond) // QEMU starts after the call
		l, err := net.Listen("unix", socket)
		if err != nil {
			return
		}
		defer l.Close()
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		g := &guest{t: t, conn: conn, r: bufio.NewScanner(conn)}
		g.read() // lost: the guest boots
		g.write(`{"event":"ready"}`, `{"id":1,"ok":true,"result":"old"}`)
		g.write(fmt.Sprintf(`{"id":%d,"ok":true}`, g.read().ID))
		r := g.read()
		g.write(fmt.Sprintf(`{"id":%d,"ok":true,"result":%q}`, r.ID, r.Cmd+string(r.Args)))
	}()
	var said strings.Builder
	got, err := CallSocket(t.Context(), socket, "fences", map[string]int{"count": 2}, time.Minute, &said)
	require.NoError(t, err)
	require.Equal(t, "lab: waiting for the guest to boot\n", said.String())
	require.JSONEq(t, `"fences{\"count\":2}"`, string(got))
	<-done
}
