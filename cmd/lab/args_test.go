package lab

import (
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/cmd/lab/fetch"
)

// arg returns the values of an option, in order.
func arg(args []string, option string) []string {
	var out []string
	for i := 0; i+1 < len(args); i++ {
		if args[i] == option {
			out = append(out, args[i+1])
		}
	}
	return out
}

func testMachine(t *testing.T, cfg Config, accel string) []string {
	require.NoError(t, cfg.setDefaults())
	m := machine{cfg: cfg, accel: accel, kernel: "/k/vmlinuz", image: "/k/image"}
	m.socketChardevs("/s/console", "/s/a,gent", "/s/monitor")
	return m.args()
}

func TestArgsDefault(t *testing.T) {
	args := testMachine(t, Config{}, AccelTCG)
	require.Equal(t, []string{"q35,memory-backend=mem"}, arg(args, "-machine"))
	require.Equal(t, []string{"memory-backend-memfd,id=mem,size=1024M,share=on"}, arg(args, "-object"))
	require.Equal(t, []string{"1024M"}, arg(args, "-m"))
	require.Equal(t, []string{"tcg,thread=multi"}, arg(args, "-accel"))
	require.Equal(t, []string{DefaultCPU}, arg(args, "-cpu"))
	require.Equal(t, []string{"chardev:console", "chardev:agent"}, arg(args, "-serial"), "ttyS0, ttyS1")
	require.Contains(t, arg(args, "-chardev"), "socket,id=agent,path=/s/a,,gent", "QEMU's commas are doubled")
	require.Contains(t, args, "-no-reboot")
	require.Empty(t, arg(args, "-device"))
}

func TestArgs(t *testing.T) {
	args := testMachine(t, Config{
		Sockets:     []string{"/s/0.sock", `/s/"1".sock`},
		DeviceProps: map[string]any{"x-no-posted-writes": true},
		Memory:      512, CPUs: 1, Reboot: true,
		Append: []string{"nouveau.debug=trace"}, QEMUArgs: []string{"-trace", "vfio_user*"},
	}, AccelKVM)
	require.Equal(t, []string{
		`{"driver":"vfio-user-pci","socket":{"path":"/s/0.sock","type":"unix"},"x-no-posted-writes":true}`,
		`{"driver":"vfio-user-pci","socket":{"path":"/s/\"1\".sock","type":"unix"},"x-no-posted-writes":true}`,
	}, arg(args, "-device"))
	require.Equal(t, []string{"kvm"}, arg(args, "-accel"))
	require.Equal(t, []string{"host"}, arg(args, "-cpu"))
	require.NotContains(t, args, "-no-reboot")
	require.True(t, strings.HasSuffix(arg(args, "-append")[0], " nouveau.debug=trace"))
	require.Equal(t, "vfio_user*", args[slices.Index(args, "-device")-1], "before the devices")
}

// Each card has its own agent socket: a second QEMU would take a shared one from the
// first.
func TestAgentSocket(t *testing.T) {
	for card, want := range map[string]string{
		"/s/a.sock":   "/s/a.agent.sock",
		"/s/b.sock":   "/s/b.agent.sock",
		"/s/b":        "/s/b.agent",
		"/s/x.1.sock": "/s/x.1.agent.sock",
		"/s/.sock":    "/s/.agent.sock",
	} {
		got, err := agentSocket([]string{card, "/s/second.sock"})
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	got, err := agentSocket(nil)
	require.NoError(t, err)
	require.Equal(t, "agent.sock", got, "no card to be named after")

	_, err = agentSocket([]string{"/" + strings.Repeat("d", maxSocket) + ".sock"})
	require.ErrorContains(t, err, "bytes")

	card := rapid.StringMatching(`/s/[abs.]{1,4}(\.sock|\.agent)?`)
	rapid.Check(t, func(t *rapid.T) {
		one, two := card.Draw(t, "one"), card.Draw(t, "two")
		a, err := agentSocket([]string{one})
		if err != nil {
			t.Fatal(err)
		}
		b, err := agentSocket([]string{two})
		if err != nil {
			t.Fatal(err)
		}
		if (a == b) != (one == two) || a == one {
			t.Fatalf("%s has %s, %s has %s", one, a, two, b)
		}
	})
}

// Printed commands work from any folder, and two guests have two agent sockets.
func TestByHand(t *testing.T) {
	t.Chdir(t.TempDir())
	dir, err := os.Getwd()
	require.NoError(t, err)
	for _, name := range []string{"a", "b"} {
		cfg := Config{Sockets: []string{name + ".sock"}, Memory: 512, CPUs: 1}
		line, err := byHand(cfg, Assets{QEMU: fetch.QEMU{Argv: []string{"true"}, Env: []string{"X=1"}}}, Accel{Name: AccelTCG})
		require.NoError(t, err)
		require.Contains(t, line, "env X=1 true")
		require.Contains(t, line, "path="+dir+"/"+name+".agent.sock")
		require.Contains(t, line, `"path":"`+dir+"/"+name+`.sock"`)
		require.NoError(t, exec.Command("sh", "-c", line).Run())
		l, err := net.Listen("unix", dir+"/"+name+".agent.sock")
		require.NoError(t, err)
		out, err := exec.Command("sh", "-c", line).CombinedOutput()
		require.Error(t, err, "a guest has the agent's socket")
		require.Contains(t, string(out), "Ctrl-A X")
		require.NoError(t, l.Close())
	}
}

func TestConfigRefused(t *testing.T) {
	for want, cfg := range map[string]Config{
		"64 MiB":  {Memory: 64},
		"-1":      {CPUs: -1},
		`"hvf"`:   {Accel: "hvf"},
		"no.sock": {Sockets: []string{"/nowhere/no.sock"}},
	} {
		_, err := Start(t.Context(), cfg)
		require.ErrorContains(t, err, want)
	}
}

// A shell reads a quoted command back as it was.
func TestQuote(t *testing.T) {
	sh, err := exec.LookPath("sh")
	require.NoError(t, err)
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringOf(rapid.RuneFrom([]rune("ab-=' \"$\\{}*?!#~;&|<>()\t\nä")))
		argv := rapid.SliceOfN(word, 0, 4).Draw(t, "argv")
		out, err := exec.Command(sh, "-c", `printf '%s\0' x `+Quote(append([]string{"x"}, argv...))).Output()
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")[2:]
		if !slices.Equal(got, argv) {
			t.Fatalf("%q became %q", argv, got)
		}
	})
}
