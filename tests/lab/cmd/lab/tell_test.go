package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/umbra-gpu/umbra/tests/lab"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestArguments(t *testing.T) {
	for _, c := range []struct {
		words string // parted by spaces
		want  string
		err   string
	}{
		{words: "ping", want: `null`},
		{words: "modprobe nouveau", want: `{"name":"nouveau"}`},
		{words: `modprobe nouveau options=["config=NvMSI=0"]`, want: `{"name":"nouveau","options":["config=NvMSI=0"]}`},
		{words: "rmmod name=nouveau", want: `{"name":"nouveau"}`},
		{words: `fences count=200 node=/dev/dri/card0`, want: `{"count":200,"node":"/dev/dri/card0"}`},
		{words: `mark text="200"`, want: `{"text":"200"}`},
		{words: `mark text=a=b`, want: `{"text":"a=b"}`},
		{words: `mark text=`, want: `{"text":""}`},
		{words: `m2mf {"seed":18446744073709551615,"quick":true}`, want: `{"seed":18446744073709551615,"quick":true}`},
		{words: `m2mf seed=18446744073709551615`, want: `{"seed":18446744073709551615}`},
		{words: "modprobe 6", want: `{"name":"6"}`},
		{words: "fences 200", err: "fences takes KEY=VALUE"},
		{words: "modprobe nouveau name=drm", err: "a name already"},
		{words: "fences count=1 count=2", err: "a count already"},
		{words: `m2mf {"seed":`, err: "not a JSON object"},
		{words: `m2mf {} quick=true`, err: "nothing may follow"},
	} {
		words := strings.Fields(c.words)
		got, err := arguments(words[0], words[1:])
		if c.err != "" {
			require.ErrorContains(t, err, c.err, c.words)
			continue
		}
		require.NoError(t, err, c.words)
		data, err := json.Marshal(got)
		require.NoError(t, err)
		// Not JSONEq, which rounds numbers: keys come sorted.
		if !strings.Contains(c.words, "{") {
			require.Equal(t, c.want, string(data), c.words)
		}
		require.JSONEq(t, c.want, string(data), c.words)
	}
}

// An answer is printed; one that is an error ends the program with one, too.
func TestTell(t *testing.T) {
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
			for r := bufio.NewScanner(conn); r.Scan(); {
				var q proto.Request
				if json.Unmarshal(r.Bytes(), &q) != nil {
					break
				}
				if q.Cmd == proto.CmdRmmod {
					fmt.Fprintf(conn, `{"id":%d,"ok":false,"error":"in use"}`+"\n", q.ID)
					continue
				}
				fmt.Fprintf(conn, `{"id":%d,"ok":true,"result":{"args":%s}}`+"\n", q.ID, append([]byte("0"), q.Args...)[min(1, len(q.Args)):])
			}
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })

	var out, progress strings.Builder
	require.NoError(t, tell(t.Context(), &out, &progress, []string{socket, "modprobe", "nouveau"}))
	require.Equal(t, `{"args":{"name":"nouveau"}}`+"\n", out.String())
	require.Empty(t, progress.String())

	out.Reset()
	err = tell(t.Context(), &out, &progress, []string{socket, "rmmod", "nouveau"})
	var refused *lab.CallError
	require.ErrorAs(t, err, &refused)
	require.ErrorContains(t, err, socket)
	require.ErrorContains(t, err, "in use")
	require.Empty(t, out.String())

	require.ErrorContains(t, tell(t.Context(), &out, &progress, []string{socket}), "lab tell a.agent.sock ping")
	require.NoError(t, tell(t.Context(), &out, &progress, []string{"-h"}))
	require.Contains(t, out.String(), "KEY=VALUE")
}
