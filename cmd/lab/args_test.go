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

// TestArgs has QEMU's whole command line, but for the kernel's.
func TestArgs(t *testing.T) {
	for want, c := range map[string]struct {
		cfg   Config
		accel string
	}{
		`-nodefaults -no-user-config -display none -m 1024M -object memory-backend-memfd,id=mem,size=1024M,share=on -machine q35,memory-backend=mem
-accel tcg,thread=multi -cpu qemu64 -smp 2 -no-reboot
-chardev socket,id=console,path=/s/console -chardev socket,id=agent,path=/s/a,,gent -chardev socket,id=monitor,path=/s/monitor
-serial chardev:console -serial chardev:agent -monitor chardev:monitor -kernel /k/vmlinuz -initrd /k/image -append KERNEL`: {Config{Chip: ChipGF100}, AccelTCG},
		`-nodefaults -no-user-config -display none -m 512M -object memory-backend-memfd,id=mem,size=512M,share=on -machine q35,memory-backend=mem
-accel kvm -cpu host -smp 1
-chardev socket,id=console,path=/s/console -chardev socket,id=agent,path=/s/a,,gent -chardev socket,id=monitor,path=/s/monitor
-serial chardev:console -serial chardev:agent -monitor chardev:monitor -kernel /k/vmlinuz -initrd /k/image -append KERNEL -trace vfio_user*
-device {"driver":"vfio-user-pci","socket":{"path":"/s/0.sock","type":"unix"},"x-no-posted-writes":true}
-device {"driver":"vfio-user-pci","socket":{"path":"/s/\"1\".sock","type":"unix"},"x-no-posted-writes":true}`: {Config{
			Sockets:     []string{"/s/0.sock", `/s/"1".sock`},
			DeviceProps: map[string]any{"x-no-posted-writes": true},
			Memory:      512, CPUs: 1, Reboot: true,
			Append: []string{"nouveau.debug=trace"}, QEMUArgs: []string{"-trace", "vfio_user*"},
		}, AccelKVM},
	} {
		require.NoError(t, c.cfg.setDefaults())
		m := machine{cfg: c.cfg, accel: c.accel, kernel: "/k/vmlinuz", image: "/k/image"}
		m.socketChardevs("/s/console", "/s/a,gent", "/s/monitor")
		line := m.commandLine()
		require.True(t, strings.HasSuffix(line, strings.Join(c.cfg.Append, " ")))
		got := strings.Join(m.args(), " ")
		require.Equal(t, strings.ReplaceAll(want, "\n", " "), strings.Replace(got, line, "KERNEL", 1))
	}
}

// Each card has its own agent socket: a second QEMU would take a shared one from the
// first.
func TestAgentSocket(t *testing.T) {
	for want, cards := range map[string][]string{"/s/x.1.agent.sock": {"/s/x.1.sock", "/s/second.sock"}, "/s/b.agent": {"/s/b"}, "agent.sock": nil} {
		got, err := agentSocket(cards)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := agentSocket([]string{"/" + strings.Repeat("d", maxSocket) + ".sock"})
	require.ErrorContains(t, err, "bytes")

	card := rapid.StringMatching(`/s/[abs.]{1,4}(\.sock|\.agent)?`)
	rapid.Check(t, func(t *rapid.T) {
		one, two := card.Draw(t, "one"), card.Draw(t, "two")
		a, err := agentSocket([]string{one})
		require.NoError(t, err)
		b, err := agentSocket([]string{two})
		require.NoError(t, err)
		require.Equal(t, one == two, a == b, "%s has %s, %s has %s", one, a, two, b)
		require.NotEqual(t, one, a)
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
		"64 MiB":    {Memory: 64},
		"-1":        {CPUs: -1},
		`"hvf"`:     {Accel: "hvf"},
		`"gb100"`:   {Chip: "gb100"},
		"1536":      {Chip: ChipGH100, Memory: 1024},
		"2048":      {Chip: ChipGH100, Mesa: "26", Memory: 1536},
		"--mesa 26": {Chip: ChipGH100, Mesa: "25"},
		"--tools":   {Chip: ChipGH100, Mesa: "26", Tools: true},
		"no.sock":   {Sockets: []string{"/nowhere/no.sock"}},
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
