package serve

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card/rm/nvrm"
	"github.com/umbra-gpu/umbra/aggregator/card/rm/worker"
	"github.com/umbra-gpu/umbra/cmd/config"
)

// Arguments that make this program a confined server that tries to escape, and the process of a card.
const (
	escapeArgument = "escape"
	workerArgument = "card-worker"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == workerArgument {
		_ = worker.Main(worker.System{System: nvrm.Host{}}, os.Args[2:])
		os.Exit(1)
	}
	if len(os.Args) > 1 && os.Args[1] == escapeArgument {
		tried, err := escape(os.Args[2], os.Args[3])
		if err != nil {
			tried = map[string]string{"failed": err.Error()}
		}
		text, _ := json.Marshal(tried)
		fmt.Println(string(text))
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// escape confines this process as a server with a socket in the folder, and says what it can do then.
func escape(folder, mode string) (map[string]string, error) {
	c := config.Default()
	c.Server.Sandbox = mode
	if err := c.AddGPU("--gpu", "name=a,vram=4GiB,socket="+filepath.Join(folder, "mine", "a.sock")); err != nil {
		return nil, err
	}
	c.Card.Kind = config.Nvidia
	if err := c.Check(); err != nil {
		return nil, err
	}
	p, err := NewPlan(c, false, nil)
	if err != nil {
		return nil, err
	}
	if mode == SandboxOn && len(os.Args) == 4 {
		missing, err := p.Confine(filepath.Join(folder, "config", "umbra.yaml"))
		if err != nil {
			return nil, err
		}
		return nil, unix.Exec("/proc/self/exe", append(os.Args, "missing: "+missing), os.Environ())
	}
	missing, err := p.Filter()
	if err != nil {
		return nil, err
	}
	tried := map[string]string{"missing": missing}
	for _, a := range os.Args[4:] {
		tried["landlock"] = a
	}
	try := func(what string, err error) { tried[what] = fmt.Sprint(err) }
	read := func(name string) error { _, err := os.ReadFile(filepath.Join(folder, name)); return err }
	listen := func(network, at string) error {
		l, err := net.Listen(network, at)
		if err == nil {
			l.Close()
		}
		return err
	}
	socket := func(family, kind int) error { _, err := unix.Socket(family, kind, 0); return err }
	try("read the configuration", read("config/umbra.yaml"))
	try("read another file", read("secret"))
	try("write a file beside the socket", os.WriteFile(filepath.Join(folder, "mine", "x"), nil, 0o600))
	try("make a folder", os.Mkdir(filepath.Join(folder, "mine", "folder"), 0o700))
	try("listen beside the socket", listen("unix", filepath.Join(folder, "mine", "b.sock")))
	try("listen elsewhere", listen("unix", filepath.Join(folder, "c.sock")))
	try("TCP socket", socket(unix.AF_INET, unix.SOCK_STREAM))
	try("netlink socket", socket(unix.AF_NETLINK, unix.SOCK_RAW))
	try("execute another program", exec.Command("/bin/true").Run())
	try("unshare", unix.Unshare(unix.CLONE_NEWUTS))
	var processors unix.CPUSet
	try("ask for processors", unix.SchedGetaffinity(0, &processors))
	try("move a thread", unix.SchedSetaffinity(0, &processors))
	try("move another process", unix.SchedSetaffinity(os.Getppid(), &processors))
	_, err = worker.Start(worker.Config{Command: []string{"/proc/self/exe", workerArgument}, User: "nobody", Log: func(format string, args ...any) { try("process", fmt.Errorf(format, args...)) }}, nil)
	try("start the process of a card", err)
	return tried, nil
}

// TestSandbox: a confined server reaches its own files and starts its own processes, which confine themselves further.
// Without a refusal it could have done the rest, too.
func TestSandbox(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{"mine", "config"} {
		require.NoError(t, os.Mkdir(filepath.Join(folder, name), 0o700))
	}
	for _, name := range []string{"secret", "config/umbra.yaml"} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), nil, 0o600))
	}
	const eperm, eacces, done = "operation not permitted", "permission denied", "<nil>"
	for mode, want := range map[string]map[string]string{
		SandboxOn: {
			"read the configuration": done, "listen beside the socket": done, "start the process of a card": "the NVIDIA driver is not loaded",
			"ask for processors": done, "move a thread": done, "move another process": eperm,
			"read another file": eacces, "write a file beside the socket": eacces, "listen elsewhere": eacces, "execute another program": eacces,
			"make a folder": eperm, "TCP socket": eperm, "netlink socket": eperm, "unshare": eperm,
		},
		SandboxLog: {
			"read another file": done, "write a file beside the socket": done, "make a folder": done, "listen elsewhere": done,
			"execute another program": done, "TCP socket": done, "netlink socket": done, "start the process of a card": "the NVIDIA driver is not loaded",
		},
	} {
		out, err := exec.Command("/proc/self/exe", escapeArgument, folder, mode).Output()
		require.NoError(t, err)
		var tried map[string]string
		require.NoError(t, json.Unmarshal(out, &tried), "%s", out)
		require.NotContains(t, tried, "failed")
		if tried["missing"] != "" || tried["landlock"] != "" && !strings.HasSuffix(tried["landlock"], ": ") {
			t.Skip(tried["missing"], tried["landlock"])
		}
		for what, end := range want {
			require.Contains(t, tried[what], end, "%s: %s: %v", mode, what, tried)
		}
		require.NotContains(t, tried, "process", "it is less confined")
	}
}
