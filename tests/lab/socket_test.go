package lab

import (
	"bufio"
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A command is sent when the guest answers a ping, and an old reply does not answer
// it.
func TestCallSocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	_, err := CallSocket(t.Context(), socket, "ping", nil, time.Second)
	require.ErrorContains(t, err, socket)
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
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
	got, err := CallSocket(t.Context(), socket, "fences", map[string]int{"count": 2}, time.Minute)
	require.NoError(t, err)
	require.JSONEq(t, `"fences{\"count\":2}"`, string(got))
	require.NoError(t, l.Close())
	<-done
}
