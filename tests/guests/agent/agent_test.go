package agent

import (
	"bufio"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/cmd/lab/proto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The server skips noise, refuses unknown commands and arguments, answers a quick
// command while a slow one runs, and reports a panic as an error.
func TestServer(t *testing.T) {
	inR, in := io.Pipe()
	outR, out := io.Pipe()
	s := New(&System{Root: t.TempDir()}, out)
	proceed := make(chan struct{})
	s.commands["slow"] = do(func(none) (none, error) { <-proceed; return none{}, nil })
	s.commands["bug"] = do(func(none) (none, error) { panic("a bug") })
	end := make(chan error, 1)
	go func() { end <- s.Serve(inR) }()
	lines := bufio.NewScanner(outR)
	send := func(text string) {
		_, err := io.WriteString(in, text+"\n")
		require.NoError(t, err)
	}
	reply := func() (r proto.Reply) {
		require.True(t, lines.Scan())
		require.NoError(t, json.Unmarshal(lines.Bytes(), &r))
		return r
	}
	for _, noise := range []string{"noise", "{}", "", `{"id":1,"cmd":"slow"}`, `{"id":2,"cmd":"ping"}`} {
		send(noise)
	}
	require.Equal(t, proto.Reply{ID: 2, OK: true, Result: json.RawMessage("{}")}, reply())
	close(proceed)
	require.EqualValues(t, 1, reply().ID)
	for request, want := range map[string]string{
		`{"id":3,"cmd":"fly"}`:                       `no command "fly"`,
		`{"id":4,"cmd":"m2mf","args":{"sede":1}}`:    "sede",
		`{"id":5,"cmd":"bug"}`:                       "a bug",
		`{"id":6,"cmd":"load-stop"}`:                 "no load is running",
		`{"id":7,"cmd":"bind","args":{"action":""}}`: "",
	} {
		send(request)
		r := reply()
		require.False(t, r.OK)
		require.Contains(t, r.Error, want)
	}
	require.NoError(t, in.Close())
	require.NoError(t, <-end)
}

func TestParseRecord(t *testing.T) {
	r, err := parseRecord("4,339,5140900,-;nouveau 0000:00:03.0: channel 3 killed!\n SUBSYSTEM=pci\n")
	require.NoError(t, err)
	require.Equal(t, proto.KmsgRecord{Seq: 339, Level: 4, USec: 5140900, Text: "nouveau 0000:00:03.0: channel 3 killed!"}, r)
	r, err = parseRecord("14,340,6,-,caller=T1;lab: a; b")
	require.NoError(t, err)
	require.Equal(t, proto.KmsgRecord{Seq: 340, Level: 6, Facility: 1, USec: 6, Text: "lab: a; b"}, r)
	rapid.Check(t, func(t *rapid.T) { _, _ = parseRecord(rapid.String().Draw(t, "text")) })
}

// A person is told of each command that there is.
func TestCommandsAreListed(t *testing.T) {
	var listed []string
	for _, c := range proto.Commands {
		listed = append(listed, c.Name)
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(New(&System{}, io.Discard).commands)), listed)
}

func TestModuleName(t *testing.T) {
	for _, name := range []string{"/lib/modules/07-drm_kms_helper.ko", "drm-kms-helper", "drm_kms_helper"} {
		require.Equal(t, "drm_kms_helper", moduleName(name))
	}
}

func TestCommandLineOptions(t *testing.T) {
	line := "console=ttyS0 nouveau.config=NvMSI=0,NvBios=PROM drm_kms_helper.x=1 nouveau.debug=info nouveau."
	require.Equal(t, []string{"config=NvMSI=0,NvBios=PROM", "debug=info"}, commandLineOptions(line, "nouveau"))
	require.Empty(t, commandLineOptions(line, "drm"))
}

func TestParseInterrupt(t *testing.T) {
	l, ok := parseInterrupt(" 24:        123          7  PCI-MSI-0000:00:03.0    0-edge      nvkm", 2, []string{"nvkm"})
	require.True(t, ok)
	require.Equal(t, proto.InterruptLine{IRQ: "24", Chip: "PCI-MSI-0000:00:03.0 0-edge nvkm", Count: 130}, l)
	_, ok = parseInterrupt("  4:  5  IO-APIC  4-edge   ttyS0", 1, []string{"nvkm"})
	require.False(t, ok)
}

// A program's output and status are returned, also of one that fails; one that does not end
// is killed.
func TestRun(t *testing.T) {
	s := &System{Root: t.TempDir()}
	r, err := s.Run(proto.RunArgs{Argv: []string{"sh", "-c", "echo $A; echo b >&2; exit 3"}, Env: []string{"A=a"}})
	require.ErrorContains(t, err, "exit status 3")
	require.Equal(t, 3, r.Exit)
	require.Equal(t, "a\nb\n", r.Output)
	r, err = s.Run(proto.RunArgs{Argv: []string{"head", "-c", "1000000", "/dev/zero"}})
	require.NoError(t, err)
	require.Len(t, r.Output, maxOutput)
	r, err = s.Run(proto.RunArgs{Argv: []string{"sh", "-c", "kill -SEGV $$"}})
	require.ErrorContains(t, err, "segmentation fault")
	require.Equal(t, int(syscall.SIGSEGV), r.Signal)
	_, err = s.Run(proto.RunArgs{Argv: []string{"sleep", "1000"}, TimeoutMS: 10})
	require.ErrorContains(t, err, "killed after 10 ms")
	_, err = s.Run(proto.RunArgs{})
	require.ErrorContains(t, err, "argv is empty")
	_, err = s.Run(proto.RunArgs{Argv: []string{"no-such-program"}})
	require.ErrorContains(t, err, "/usr/bin")
}
