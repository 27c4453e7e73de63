package lab

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/umbra-gpu/umbra/cmd/lab/proto"
)

// VM is a running virtual machine.
type VM struct {
	cfg    Config
	assets Assets
	accel  Accel
	argv   []string
	began  time.Time

	dir     string // sockets
	logs    string // dir, unless Config.Dir keeps the logs
	proc    *Process
	unwatch func() bool // stops watching the context
	done    chan struct{}

	console *journal[ConsoleLine]
	agent   *Agent
	monitor net.Conn
}

// ConsoleLine is one line of the guest's first serial port, and when it came.
type ConsoleLine struct {
	Time time.Time
	Text string
}

// errEnded ends what waits for a machine that has ended.
var errEnded = errors.New("the virtual machine has ended")

// Process is a child process that dies with this process.
type Process struct {
	Cmd   *exec.Cmd
	Ended chan struct{}
	Err   error // of Wait; valid after Ended
}

// StartProcess starts cmd from a thread of its own. The kernel sends Pdeathsig when the
// thread ends that forked, and the Go runtime ends threads that no goroutine holds.
func StartProcess(cmd *exec.Cmd) (*Process, error) {
	p := &Process{Cmd: cmd, Ended: make(chan struct{})}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.Err = cmd.Wait()
			close(p.Ended)
		}
	}()
	return p, <-started
}

// Kill ends the process if it still runs.
func (p *Process) Kill() {
	p.Cmd.Process.Kill() // fails only for a process that has ended
	<-p.Ended
}

// launch starts QEMU and connects to it.
func launch(ctx context.Context, cfg Config, a Assets, accel Accel) (_ *VM, err error) {
	vm := &VM{
		cfg: cfg, assets: a, accel: accel, began: time.Now(),
		done: make(chan struct{}), console: newJournal[ConsoleLine](),
	}
	if vm.dir, err = socketDir(); err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	defer func() {
		if err != nil {
			os.RemoveAll(vm.dir)
		}
	}()
	if vm.logs = cfg.Dir; vm.logs == "" {
		vm.logs = vm.dir
	} else if err := os.MkdirAll(vm.logs, 0o755); err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}

	var listeners []*net.UnixListener
	defer func() {
		for _, l := range listeners {
			l.Close() // removes the socket's file too
		}
	}()
	var paths []string
	for _, name := range []string{"console", "agent", "monitor"} {
		p := filepath.Join(vm.dir, name)
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: p, Net: "unix"})
		if err != nil {
			return nil, fmt.Errorf("lab: %w", err)
		}
		listeners, paths = append(listeners, l), append(paths, p)
	}
	m := machine{cfg: cfg, accel: accel.Name, kernel: a.Kernel.Image, image: a.Image}
	m.socketChardevs(paths[0], paths[1], paths[2])
	vm.argv = slices.Concat(a.QEMU.Argv, m.args())
	if err := vm.spawn(); err != nil {
		return nil, fmt.Errorf("lab: starting QEMU: %w", err)
	}

	conns, err := acceptAll(ctx, vm.proc.Ended, listeners)
	if err != nil {
		vm.proc.Kill()
		return nil, fmt.Errorf("lab: QEMU did not come up: %w\n%s", err, vm.qemuLog())
	}
	if err := vm.read(conns); err != nil {
		vm.proc.Kill()
		return nil, err
	}
	vm.unwatch = context.AfterFunc(ctx, vm.Kill)
	return vm, nil
}

// socketDir makes a folder with a path short enough for sockets: 107 bytes.
func socketDir() (string, error) {
	dir, err := os.MkdirTemp("", "umbra-lab-")
	if err == nil && len(dir) > 90 {
		os.Remove(dir)
		return os.MkdirTemp("/tmp", "umbra-lab-")
	}
	return dir, err
}

// spawn starts the process, with its messages going to a file.
func (vm *VM) spawn() error {
	text := Quote(vm.argv) + "\n"
	if err := os.WriteFile(filepath.Join(vm.logs, "command"), []byte(text), 0o644); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(vm.logs, "qemu.log"))
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own
	cmd := exec.Command(vm.argv[0], vm.argv[1:]...)
	cmd.Env = append(os.Environ(), vm.assets.QEMU.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	vm.proc, err = StartProcess(cmd)
	return err
}

// acceptAll waits for QEMU to connect to each of its sockets.
func acceptAll(ctx context.Context, ended <-chan struct{}, ls []*net.UnixListener) (conns []net.Conn, err error) {
	stop, watched := make(chan struct{}), make(chan struct{})
	var cause error
	go func() {
		defer close(watched)
		select {
		case <-ctx.Done():
			cause = context.Cause(ctx)
		case <-ended:
			cause = errors.New("it ended")
		case <-stop:
			return
		}
		for _, l := range ls {
			l.SetDeadline(time.Unix(1, 0)) // Accept returns
		}
	}()
	for _, l := range ls {
		var c net.Conn
		if c, err = l.Accept(); err != nil {
			break
		}
		conns = append(conns, c)
	}
	close(stop)
	<-watched
	if err != nil {
		closeAll(conns)
		return nil, cmp.Or(cause, err)
	}
	return conns, nil
}

func closeAll(conns []net.Conn) {
	for _, c := range conns {
		c.Close()
	}
}

// read starts the readers, and a goroutine that awaits them and the process.
func (vm *VM) read(conns []net.Conn) error {
	log, err := os.Create(filepath.Join(vm.logs, "console.log"))
	if err != nil {
		closeAll(conns)
		return fmt.Errorf("lab: %w", err)
	}
	vm.agent, vm.monitor = newAgent(conns[1]), conns[2]
	var readers sync.WaitGroup
	readers.Go(func() { vm.readConsole(conns[0], log) })
	readers.Go(vm.agent.run)
	readers.Go(func() { io.Copy(io.Discard, vm.monitor) }) // ends with QEMU
	go func() {
		<-vm.proc.Ended
		readers.Wait() // QEMU's end has ended their connections
		closeAll(conns)
		log.Close()
		close(vm.done)
	}()
	return nil
}

// readConsole keeps the console's output in a file, and by lines.
func (vm *VM) readConsole(conn net.Conn, log io.Writer) {
	defer vm.console.close(errEnded)
	r := bufio.NewReader(io.TeeReader(conn, log))
	for {
		text, err := r.ReadString('\n')
		if text = strings.TrimRight(text, "\r\n"); text != "" || err == nil {
			vm.console.add(ConsoleLine{Time: time.Now(), Text: text})
		}
		if err != nil {
			return
		}
	}
}

// Agent is the program in the guest.
func (vm *VM) Agent() *Agent { return vm.agent }

// Kernel is what the guest runs.
func (vm *VM) Kernel() string { return vm.assets.Kernel.Release }

// QEMUVersion is the version of the emulator.
func (vm *VM) QEMUVersion() string { return vm.assets.QEMU.Version }

// Accel is the accelerator in use and why.
func (vm *VM) Accel() Accel { return vm.accel }

// Command is the exact command line of this machine, for a shell.
func (vm *VM) Command() string { return Quote(vm.argv) }

// PID is QEMU's process id.
func (vm *VM) PID() int { return vm.proc.Cmd.Process.Pid }

// Dir is where console.log, qemu.log and command are.
func (vm *VM) Dir() string { return vm.logs }

// Began is when the machine was started.
func (vm *VM) Began() time.Time { return vm.began }

// Console returns the console's lines so far: firmware, kernel, init.
func (vm *VM) Console() []ConsoleLine { return vm.console.all() }

// WaitConsole waits for a console line that holds text, at or after position
// from, and returns it with the position behind it.
func (vm *VM) WaitConsole(ctx context.Context, text string, from int) (ConsoleLine, int, error) {
	return vm.console.wait(ctx, from, func(l ConsoleLine) bool { return strings.Contains(l.Text, text) })
}

// KernelLog returns the guest's kernel log since boot, with levels.
func (vm *VM) KernelLog(ctx context.Context) ([]LogLine, error) { return vm.KernelLogAfter(ctx, 0) }

// KernelLogAfter returns the guest's kernel log after a record: see proto.MarkResult. 0 is all.
func (vm *VM) KernelLogAfter(ctx context.Context, seq uint64) ([]LogLine, error) {
	var args proto.KmsgArgs
	if seq > 0 {
		args.AfterSeq = &seq
	}
	var out []LogLine
	for {
		var res proto.KmsgResult
		if err := vm.agent.Call(ctx, proto.CmdKmsg, args, &res); err != nil {
			return out, err
		}
		out = append(out, res.Records...)
		if !res.More || len(res.Records) == 0 {
			return out, nil
		}
		args.AfterSeq = &res.Records[len(res.Records)-1].Seq
	}
}

var errSilent = errors.New("silent")

// ready waits until the guest has come up n times. A busy host takes ten times as long
// for a boot as an idle one, so the wait fails only when the console was silent for
// Config.BootTimeout.
func (vm *VM) ready(ctx context.Context, n int) error {
	began := time.Now()
	for {
		lines := len(vm.console.all())
		quiet, cancel := context.WithTimeoutCause(ctx, vm.cfg.BootTimeout, errSilent)
		_, err := vm.agent.Ready(quiet, n)
		cancel()
		if !errors.Is(err, errSilent) {
			return err
		}
		if len(vm.console.all()) == lines {
			return fmt.Errorf("the guest was not up after %v: the console was silent for %v",
				time.Since(began).Round(time.Millisecond), vm.cfg.BootTimeout)
		}
	}
}

// Reset resets the machine and waits until the guest is up again. It needs
// Config.Reboot.
func (vm *VM) Reset(ctx context.Context) error {
	return vm.again(ctx, func() error {
		_, err := io.WriteString(vm.monitor, "system_reset\n")
		return err
	})
}

// Reboot reboots the guest in good order and waits until it is up again. It needs
// Config.Reboot.
func (vm *VM) Reboot(ctx context.Context) error {
	return vm.again(ctx, func() error { return vm.agent.Call(ctx, proto.CmdReboot, nil, nil) })
}

func (vm *VM) again(ctx context.Context, how func() error) error {
	if !vm.cfg.Reboot {
		return errors.New("lab: a reset would end this machine: set Config.Reboot")
	}
	boots := vm.agent.Boots()
	// The reply may be lost in the reboot that it announces.
	if err := how(); err != nil && !errors.Is(err, ErrRebooted) {
		return err
	}
	return vm.ready(ctx, boots+1)
}

// Suspend suspends the guest to RAM, wakes it up, and returns when its programs run again. It needs
// Config.Suspend.
func (vm *VM) Suspend(ctx context.Context) error {
	if !vm.cfg.Suspend {
		return errors.New("lab: this machine could not wake up: set Config.Suspend")
	}
	awake := make(chan error, 1)
	go func() { awake <- vm.agent.Call(ctx, proto.CmdSuspend, nil, nil) }()
	for {
		select {
		case err := <-awake:
			return err
		case <-time.After(50 * time.Millisecond): // QEMU refuses to wake a guest that does not sleep
			if _, err := io.WriteString(vm.monitor, "system_wakeup\n"); err != nil {
				return errors.Join(err, <-awake)
			}
		}
	}
}

// Poweroff shuts the guest down in good order and waits for the machine to end.
func (vm *VM) Poweroff(ctx context.Context) error {
	if err := vm.agent.Call(ctx, proto.CmdPoweroff, nil, nil); err != nil && !errors.Is(err, errEnded) {
		return err
	}
	return vm.Wait(ctx)
}

// Kill ends QEMU with SIGKILL, as if power failed. It returns when the process has
// ended.
func (vm *VM) Kill() {
	vm.proc.Kill()
	<-vm.done
}

// Done is closed when the machine has ended and all its output is kept.
func (vm *VM) Done() <-chan struct{} { return vm.done }

// Wait waits for the machine to end by itself. A QEMU that failed or was
// killed is an error.
func (vm *VM) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-vm.done:
	}
	if vm.proc.Err != nil {
		return fmt.Errorf("lab: QEMU: %w\n%s", vm.proc.Err, vm.qemuLog())
	}
	return nil
}

// Close ends the machine if it still runs, and removes its temporary files.
// It may be called more than once.
func (vm *VM) Close() error {
	if vm.unwatch != nil {
		vm.unwatch()
	}
	vm.Kill()
	return os.RemoveAll(vm.dir)
}

// qemuLog is the end of QEMU's own messages.
func (vm *VM) qemuLog() string {
	data, err := os.ReadFile(filepath.Join(vm.logs, "qemu.log"))
	if err != nil {
		return err.Error()
	}
	return tail(string(data), 4000)
}

// Diagnosis is the end of QEMU's messages and of the console, for reports of failures.
func (vm *VM) Diagnosis() string {
	var b strings.Builder
	if log := vm.qemuLog(); log != "" {
		fmt.Fprintf(&b, "QEMU said:\n%s\n", log)
	}
	lines := vm.console.all()
	fmt.Fprintf(&b, "end of the console (%d lines):\n", len(lines))
	for _, l := range lines[max(0, len(lines)-30):] {
		fmt.Fprintf(&b, "  %s\n", l.Text)
	}
	fmt.Fprintf(&b, "command: %s", vm.Command())
	return b.String()
}

func tail(s string, n int) string {
	if len(s) > n {
		return "[...]" + s[len(s)-n:]
	}
	return s
}
