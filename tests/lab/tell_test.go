package lab

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/tests/lab/proto"
)

// listen plays the machine behind an agent's socket: serve has each client in turn.
func listen(t *testing.T, serve func(r *bufio.Scanner, w io.Writer)) string {
	socket := filepath.Join(t.TempDir(), "a.agent.sock")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serve(bufio.NewScanner(conn), conn)
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return socket
}

// requests reads them until the client goes.
func requests(r *bufio.Scanner, each func(line string, q proto.Request)) {
	for r.Scan() {
		var q proto.Request
		if json.Unmarshal(r.Bytes(), &q) == nil {
			each(r.Text(), q)
		}
	}
}

func TestTell(t *testing.T) {
	var ids []uint64
	socket := listen(t, func(r *bufio.Scanner, w io.Writer) {
		earlier := slices.Clone(ids)
		requests(r, func(_ string, q proto.Request) {
			for _, id := range earlier { // as if the clients before had not waited
				fmt.Fprintf(w, `{"id":%d,"ok":true,"result":"stale"}`+"\n", id)
			}
			ids = append(ids, q.ID)
			switch q.Cmd {
			case proto.CmdPing:
				fmt.Fprintf(w, `{"id":%d,"ok":true,"result":{}}`+"\n", q.ID)
			case "good":
				fmt.Fprintf(w, `{"id":%d,"ok":true,"result":%s}`+"\n", q.ID, q.Args)
			default:
				fmt.Fprintf(w, `{"id":%d,"ok":false,"error":"it broke","result":{"done":3}}`+"\n", q.ID)
			}
		})
	})
	for range 2 {
		got, err := Tell(t.Context(), socket, "good", map[string]int{"n": 7}, time.Minute, io.Discard)
		require.NoError(t, err)
		require.JSONEq(t, `{"n":7}`, string(got))
	}
	got, err := Tell(t.Context(), socket, "bad", nil, time.Minute, io.Discard)
	var refused *CallError
	require.ErrorAs(t, err, &refused)
	require.ErrorContains(t, err, socket)
	require.ErrorContains(t, err, "it broke")
	require.JSONEq(t, `{"done":3}`, string(got), "what it did until then")
}

// Before the guest is up its terminal swallows requests, or says them back. Nothing but
// pings may be said to it until it answers.
func TestTellBoots(t *testing.T) {
	var heard []string
	socket := listen(t, func(r *bufio.Scanner, w io.Writer) {
		up := false
		requests(r, func(line string, q proto.Request) {
			heard = append(heard, q.Cmd)
			switch {
			case up:
				fmt.Fprintf(w, `{"id":%d,"ok":true,"result":{}}`+"\n", q.ID)
			case len(heard) == 1: // swallowed: only a second ping shows that it waits
			default:
				fmt.Fprintln(w, line)
				up = true
				fmt.Fprintln(w, `{"event":"ready"}`)
			}
		})
	})
	var progress strings.Builder
	_, err := Tell(t.Context(), socket, "work", nil, time.Minute, &progress)
	require.NoError(t, err)
	pings := heard[:len(heard)-1]
	require.GreaterOrEqual(t, len(pings), 3, "one was swallowed, one said back")
	require.Equal(t, slices.Repeat([]string{"ping"}, len(pings)), pings)
	require.Equal(t, "work", heard[len(heard)-1])
	require.Equal(t, 1, strings.Count(progress.String(), "no word"))
}

func TestTellFails(t *testing.T) {
	dir := t.TempDir()
	_, err := Tell(t.Context(), dir+"/none.sock", "ping", nil, time.Minute, io.Discard)
	require.ErrorContains(t, err, dir+"/none.sock")
	require.ErrorContains(t, err, "lab command")

	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dir + "/left.sock", Net: "unix"})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
	_, err = Tell(t.Context(), dir+"/left.sock", "ping", nil, time.Minute, io.Discard)
	require.ErrorContains(t, err, "/left.sock: nobody listens")

	// Another program has it: a connection is made, and nobody takes it.
	l, err = net.ListenUnix("unix", &net.UnixAddr{Name: dir + "/busy.sock", Net: "unix"})
	require.NoError(t, err)
	defer l.Close()
	_, err = Tell(t.Context(), dir+"/busy.sock", "ping", nil, 20*time.Millisecond, io.Discard)
	require.ErrorContains(t, err, "/busy.sock: no word")
	require.ErrorContains(t, err, "another program")

	gone := listen(t, func(r *bufio.Scanner, _ io.Writer) { r.Scan() })
	_, err = Tell(t.Context(), gone, "ping", nil, time.Minute, io.Discard)
	require.ErrorIs(t, err, errGone)
	require.ErrorContains(t, err, gone)
}
