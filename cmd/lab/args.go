package lab

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"strconv"
	"strings"
)

// machine holds everything in QEMU's command line.
type machine struct {
	cfg      Config
	accel    string // "kvm" or "tcg"
	kernel   string // bzImage
	image    string // initramfs
	chardevs []string
	console  string // chardev ids of the two serial ports and the monitor
	agent    string
	monitor  string
}

// socketChardevs connect a machine to sockets that listen in dir.
func (m *machine) socketChardevs(console, agent, monitor string) {
	m.console, m.agent, m.monitor = "console", "agent", "monitor"
	m.chardevs = []string{
		"socket,id=console,path=" + comma(console),
		"socket,id=agent,path=" + comma(agent),
		"socket,id=monitor,path=" + comma(monitor),
	}
}

// terminalChardevs connect a machine to a person's terminal.
func (m *machine) terminalChardevs(agent string) {
	m.console, m.agent = "terminal", "agent"
	m.chardevs = []string{
		"stdio,id=terminal,mux=on,signal=off",
		"socket,id=agent,server=on,wait=off,path=" + comma(agent),
	}
}

// maxSocket is the longest path of a UNIX socket: sun_path without its final zero.
const maxSocket = 107

// absolute makes paths independent of the working folder.
func absolute(sockets []string) ([]string, error) {
	out := make([]string, len(sockets))
	for i, s := range sockets {
		abs, err := filepath.Abs(s)
		if err != nil {
			return nil, fmt.Errorf("lab: socket %s: %w", s, err)
		}
		out[i] = abs
	}
	return out, nil
}

// agentSocket is the agent's socket of a machine that a person starts. It is named
// after the machine's first device, which has one client at a time: QEMU silently
// replaces an existing socket, so two machines must not name the same one.
func agentSocket(sockets []string) (string, error) {
	if len(sockets) == 0 {
		return "agent.sock", nil
	}
	agent := sockets[0] + ".agent"
	if name, ok := strings.CutSuffix(sockets[0], ".sock"); ok {
		agent = name + ".agent.sock"
	}
	if len(agent) > maxSocket {
		return "", fmt.Errorf("lab: the agent's socket would be %s, of %d bytes; a UNIX socket's path has %d at most: serve the card in a folder with a shorter path", agent, len(agent), maxSocket)
	}
	return agent, nil
}

// comma escapes a value for QEMU's options.
func comma(s string) string { return strings.ReplaceAll(s, ",", ",,") }

// devices are the arguments that attach the vfio-user devices. QEMU takes the socket's address as
// JSON only.
func (m *machine) devices() (args []string) {
	for _, s := range m.cfg.Sockets {
		dev := map[string]any{"driver": "vfio-user-pci", "socket": map[string]string{"path": s, "type": "unix"}}
		maps.Copy(dev, m.cfg.DeviceProps)
		data, err := json.Marshal(dev) // sorts keys: one spelling for one device
		if err != nil {
			panic(fmt.Sprintf("lab: device properties %v: %v", m.cfg.DeviceProps, err))
		}
		args = append(args, "-device", string(data))
	}
	return args
}

// args is the whole command line behind QEMU's own name.
func (m *machine) args() []string {
	c := m.cfg
	accel := m.accel
	if accel == AccelTCG {
		accel = "tcg,thread=multi"
	}
	args := []string{
		"-nodefaults", "-no-user-config", "-display", "none", "-m", fmt.Sprintf("%dM", c.Memory),
		// The server maps the guest's memory.
		"-object", fmt.Sprintf("memory-backend-memfd,id=mem,size=%dM,share=on", c.Memory), "-machine", "q35,memory-backend=mem",
		"-accel", accel, "-cpu", m.cpu(), "-smp", strconv.Itoa(c.CPUs),
	}
	if !c.Reboot {
		args = append(args, "-no-reboot")
	}
	for _, d := range m.chardevs {
		args = append(args, "-chardev", d)
	}
	args = append(args, "-serial", "chardev:"+m.console, "-serial", "chardev:"+m.agent)
	if m.monitor != "" {
		args = append(args, "-monitor", "chardev:"+m.monitor)
	}
	args = append(args, "-kernel", m.kernel, "-initrd", m.image, "-append", m.commandLine())
	args = append(args, c.QEMUArgs...) // an IOMMU serves the devices behind it
	return append(args, m.devices()...)
}

func (m *machine) cpu() string {
	if m.cfg.CPU == "" && m.accel == AccelKVM {
		return "host"
	}
	if m.cfg.Chip != "" {
		return cmp.Or(m.cfg.CPU, firmwareCPU)
	}
	return cmp.Or(m.cfg.CPU, DefaultCPU)
}

// commandLine is the kernel's command line.
func (m *machine) commandLine() string {
	words := []string{
		"console=ttyS0",
		"ignore_loglevel",   // show all lines; they cost little
		"log_buf_len=4M",    // keep the whole log until the agent reads it
		"mitigations=off",   // no program in this guest attacks it
		"cryptomgr.notests", // the self-tests take a tenth of a boot
		"tsc=reliable",      // on a busy host TCG's clocks drift apart, and the watchdog would warn
		"panic=-1",          // a panic ends or resets the machine at once
	}
	if khz := tscKHz(); m.accel == AccelTCG && khz > 0 {
		words = append(words, fmt.Sprintf("tsc_early_khz=%d", khz))
	}
	if m.accel == AccelTCG {
		words = append(words,
			"rodata=off",               // the kernel does not walk its page tables to check them
			"rcupdate.rcu_expedited=1") // loading a module does not wait for the other processor's tick
	}
	return strings.Join(append(words, m.cfg.Append...), " ")
}

// Quote formats a command so that a shell reads it back the same.
func Quote(argv []string) string {
	var b strings.Builder
	for i, a := range argv {
		if i > 0 {
			if strings.HasPrefix(a, "-") {
				b.WriteString(" \\\n  ")
			} else {
				b.WriteByte(' ')
			}
		}
		if a != "" && strings.Trim(a, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+:,./@%") == "" {
			b.WriteString(a)
			continue
		}
		b.WriteString("'" + strings.ReplaceAll(a, "'", `'\''`) + "'")
	}
	return b.String()
}
