// Package lab runs virtual machines for tests, demonstrations and benchmarks:
// QEMU with vfio-user devices attached, a stock Debian kernel, and a guest
// program that runs commands.
//
//	vm, err := lab.Start(ctx, lab.Config{Kernel: "6.12", Sockets: []string{sock}})
//	...
//	defer vm.Close()
//	err = vm.Agent().Call(ctx, proto.CmdModprobe, proto.ModprobeArgs{Name: "nouveau"}, nil)
//
// What is missing is fetched (package fetch) and built (package image) first.
// KVM is used where it really boots such a guest, which is tried once and
// remembered; else QEMU's own code translation, TCG.
//
// The guest has two serial ports. ttyS0 is the kernel's console; all of it is
// kept. ttyS1 carries the JSON lines of package proto.
//
// A VM owns its QEMU process, a folder for sockets and logs, and these
// goroutines, which end with the process: one that starts and awaits it and
// holds its thread (the kernel kills QEMU when that thread ends, so QEMU does
// not outlive this process), and one reader for each of console, agent and
// monitor. VM has no lock of its own; its journals and its agent have one each, and
// never hold two. CallSocket owns a connection and its reader for one command.
package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/umbra-gpu/umbra/cmd/lab/fetch"
)

// The accelerators.
const (
	AccelKVM = "kvm"
	AccelTCG = "tcg"
)

// Kernels are the versions that tests of a GF100 run on, and KernelsGH100 those of a GH100.
var (
	Kernels      = []string{"6.1", "6.12", "7.2"}
	KernelsGH100 = []string{"6.18", "7.2", "7.3"}
)

// The chips. ChipGH100 is the one whose driver needs firmware; its programs use Vulkan.
const (
	ChipGF100 = "gf100"
	ChipGH100 = "gh100"
)

// What a machine for a GH100 has when nothing else is asked for.
const (
	kernelGH100 = "7.2"
	mesaGH100   = "26" // the only one that knows the chip
)

// DefaultCPU is the processor model under TCG. The plain one boots as fast as
// any: TCG has less to emulate. It lacks ERMS, whose presence makes kernels
// fill and copy I/O memory in single bytes; name another model to have that.
const DefaultCPU = "qemu64"

// firmwareCPU also has what a kernel hashes its firmware with: that takes 2 s less of each probe.
const firmwareCPU = DefaultCPU + ",+ssse3,+sse4.1,+sha-ni"

// What a machine has when nothing else is asked for.
const (
	DefaultMemory = 1024 // MiB
	DefaultCPUs   = 2

	// MesaMemory holds the image, what it unpacks to, and a compiler at work, in MiB.
	MesaMemory = 1536
	// FirmwareMemory is more for a guest with firmware: in the image, unpacked, and the driver's copies.
	FirmwareMemory = 512
)

// Config describes a virtual machine. The zero Config is a machine without
// devices that runs the default kernel.
type Config struct {
	Kernel      string         // version: "6.1", "6.12", "7.2", ...; "" for fetch.DefaultKernel, or the user's own; or a path of a bzImage
	Modules     string         // of a bzImage: its lib/modules/RELEASE; "" for that of this machine
	Sockets     []string       // one vfio-user-pci device for each; servers must be listening
	DeviceProps map[string]any // more properties for the devices: "x-no-posted-writes": true, ...
	Memory      int            // MiB; 0 for DefaultMemory, or MesaMemory with Mesa, and FirmwareMemory more with a Chip
	CPUs        int            // 0 for DefaultCPUs
	CPU         string         // processor model; "" for one like DefaultCPU, or "host" under KVM
	Accel       string         // AccelKVM or AccelTCG; "" for the one that works
	Append      []string       // more words for the kernel's command line
	Reboot      bool           // a reset starts the guest anew; without it, a reset ends the machine
	Suspend     bool           // the guest can wake up after VM.Suspend; booting it takes twice as long
	QEMUArgs    []string       // more arguments for QEMU, before the devices

	// Chip is the guest's GPU: ChipGH100, for which the guest has firmware, or ChipGF100, as "".
	Chip string

	// Mesa is the version of Debian's Mesa that the guest has: "25", "26", or "" for none; or the path of one
	// that somebody built, where meson installed it. C sources in Programs are compiled against it; the guest
	// has them in image.ProgramsDir. For a GH100 it is Vulkan, else OpenCL and OpenGL.
	Mesa     string
	Programs []string
	Only     bool // the guest runs Programs and no other: without Mesa if they do not use it
	Tools    bool // the guest has clpeak, tests of piglit and a C compiler besides Mesa

	// Image is an initramfs to boot as it is: then nothing is built.
	Image string

	NoWait      bool          // Start returns before the guest is up; see Agent.Ready
	BootTimeout time.Duration // how long the console of a guest that comes up may be silent; 0 for 2 minutes
	Dir         string        // keep console.log, command and qemu.log here; "" for a temporary folder
	Progress    io.Writer     // lines about fetching and building; nil for none

	// Step, if not nil, is called when a step of Start has ended.
	Step func(step string)
}

func (c *Config) step(name string) {
	if c.Step != nil {
		c.Step(name)
	}
}

// Check says what is wrong with a configuration, without fetching anything.
func (c Config) Check() error {
	if err := c.setDefaults(); err != nil {
		return err
	}
	return errors.Join(fetch.CheckKernel(c.Kernel), fetch.CheckMesa(c.Mesa, c.Chip == ChipGH100))
}

func (c *Config) setDefaults() error {
	if c.Chip == ChipGF100 {
		c.Chip = ""
	}
	memory := DefaultMemory
	if c.Mesa != "" {
		memory = MesaMemory
	}
	if c.Chip != "" {
		memory += FirmwareMemory
		if os.Getenv(fetch.EnvKernel) == "" {
			c.Kernel = cmp.Or(c.Kernel, kernelGH100)
		}
	}
	c.Memory = cmp.Or(c.Memory, memory)
	c.CPUs = cmp.Or(c.CPUs, DefaultCPUs)
	c.BootTimeout = cmp.Or(c.BootTimeout, 2*time.Minute)
	switch {
	case c.Memory < 128:
		return fmt.Errorf("lab: Memory is %d MiB; a Debian kernel needs 128 or more", c.Memory)
	case c.Chip != "" && c.Chip != ChipGH100:
		return fmt.Errorf("lab: Chip is %q; %q or %q are possible", c.Chip, ChipGF100, ChipGH100)
	case memory > DefaultMemory && c.Memory < memory:
		return fmt.Errorf("lab: Memory is %d MiB; a guest with Mesa or firmware as asked for needs %d or more", c.Memory, memory)
	case c.Chip == ChipGH100 && c.Mesa != "" && c.Mesa != mesaGH100 && !fetch.IsPath(c.Mesa):
		return fmt.Errorf("lab: Mesa %s has no driver for a GH100: take --mesa %s", c.Mesa, mesaGH100)
	case c.Chip == ChipGH100 && c.Tools:
		return errors.New("lab: tools use OpenCL, which Mesa does not have for a GH100: leave --tools out")
	case c.Mesa == "" && len(c.Programs) > 0:
		return errors.New("lab: programs are compiled against Mesa: add --mesa 25 or --mesa 26")
	case c.Mesa == "" && c.Tools:
		return errors.New("lab: tools come with Mesa: add --mesa 25 or --mesa 26")
	case c.Modules != "" && !fetch.IsPath(c.Kernel):
		return fmt.Errorf("lab: Modules %s are of a kernel of your own: give its bzImage with --kernel, with a slash in its name", c.Modules)
	case c.CPUs < 1:
		return fmt.Errorf("lab: CPUs is %d; at least 1 is needed", c.CPUs)
	case c.Accel != "" && c.Accel != AccelKVM && c.Accel != AccelTCG:
		return fmt.Errorf("lab: Accel is %q; %q, %q or nothing (the one that works) are possible", c.Accel, AccelKVM, AccelTCG)
	}
	return nil
}

// prepare completes a configuration, and finds or makes all that its machine is started from.
func prepare(ctx context.Context, cfg *Config) (a Assets, accel Accel, err error) {
	if err := cfg.setDefaults(); err != nil {
		return a, accel, err
	}
	if a, err = assets(ctx, *cfg); err != nil {
		return a, accel, err
	}
	cfg.step("find QEMU, the kernel and Mesa")
	if a.Image == "" {
		err = a.build(ctx, *cfg)
	}
	if err != nil {
		return a, accel, err
	}
	cfg.step("build the guest's image")
	if cfg.Suspend {
		a.Kernel.Image = a.Kernel.BzImage // at wake-up QEMU loads an ELF kernel again, over the one that ran
	}
	accel, err = chooseAccel(ctx, *cfg, a)
	return a, accel, err
}

// Start starts a machine and waits until its guest is up. The machine is
// killed when ctx ends; Close ends it earlier.
func Start(ctx context.Context, cfg Config) (*VM, error) {
	for _, s := range cfg.Sockets {
		// QEMU would say so only in its log, and only after a while.
		if _, err := os.Stat(s); err != nil {
			return nil, fmt.Errorf("lab: no vfio-user server: %w", err)
		}
	}
	a, accel, err := prepare(ctx, &cfg)
	if err != nil {
		return nil, err
	}
	vm, err := launch(ctx, cfg, a, accel)
	if err != nil || cfg.NoWait {
		return vm, err
	}
	cfg.step("start QEMU")
	if err := vm.ready(ctx, 1); err != nil {
		vm.Kill()
		err := fmt.Errorf("lab: Linux %s under %s: %w\n%s", a.Kernel.Release, accel.Name, err, vm.Diagnosis())
		return nil, errors.Join(err, vm.Close())
	}
	cfg.step("boot Linux " + a.Kernel.Release)
	return vm, nil
}

// Command returns a command line for a person's terminal that starts the same
// machine by hand: the console on the terminal, the agent's port on a socket
// (CallSocket). Servers need not be listening yet. The line does the same from every
// folder, and lines for other devices may run beside it.
func Command(ctx context.Context, cfg Config) (string, error) {
	a, accel, err := prepare(ctx, &cfg)
	if err != nil {
		return "", err
	}
	return byHand(cfg, a, accel)
}

// byHand is the command line of a machine of which everything is known.
func byHand(cfg Config, a Assets, accel Accel) (_ string, err error) {
	if cfg.Sockets, err = absolute(cfg.Sockets); err != nil {
		return "", err
	}
	agent, err := agentSocket(cfg.Sockets)
	if err != nil {
		return "", err
	}
	m := machine{cfg: cfg, accel: accel.Name, kernel: a.Kernel.Image, image: a.Image}
	m.terminalChardevs(agent)
	argv := slices.Concat(a.QEMU.Argv, m.args())
	if len(a.QEMU.Env) > 0 {
		argv = slices.Concat([]string{"env"}, a.QEMU.Env, argv)
	}
	// A second QEMU would replace the agent's socket. What the kernel lists there has a process.
	return fmt.Sprintf("! grep -qsF %s /proc/net/unix || ! echo %s >&2 && \\\n", Quote([]string{" " + agent}),
		Quote([]string{agent + " is in use: end the guest that has it first (Ctrl-A X)"})) + Quote(argv), nil
}
