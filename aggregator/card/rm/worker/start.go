package worker

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	defaultTimeout = 5 * time.Second
	// startTimeout is for the driver, which may have to start the card first.
	startTimeout = 30 * time.Second
)

// Start starts a process, and waits until it has its client of the driver. Its errors are for users.
func Start(cfg Config, events Events) (*Worker, error) {
	credential, err := credentialOf(cfg.User)
	if err != nil {
		return nil, err
	}
	c, its, err := connect()
	if err != nil {
		return nil, err
	}
	command := append([]string(nil), cfg.Command...)
	cmd := exec.Command(command[0], append(command[1:], strconv.Itoa(cfg.Minor), strconv.FormatBool(cfg.AnyDriver))...)
	cmd.Env, cmd.Dir, cmd.Stderr, cmd.ExtraFiles = []string{}, "/", os.Stderr, []*os.File{its}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: credential,
		Pdeathsig:  syscall.SIGKILL,
		Setpgid:    true, // a terminal's signals are for the server
	}
	started, reaped := make(chan error), make(chan struct{})
	go func() {
		// The kernel sends Pdeathsig when the thread ends that made the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait()
		}
		close(reaped)
	}()
	err = <-started
	its.Close()
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("start the process of the card's channels: %w", err)
	}
	s := newWorker(c, cfg, events, func() { cmd.Process.Kill() }, reaped, func() string { return cmd.ProcessState.String() })
	s.pid = cmd.Process.Pid
	return s, s.open()
}

// connect makes a connection: the server's end, and the other end as a file.
func connect() (*conn, *os.File, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	its := os.NewFile(uintptr(pair[1]), "worker")
	c, err := newConn(os.NewFile(uintptr(pair[0]), "server"))
	if err != nil {
		its.Close()
		return nil, nil, err
	}
	return c, its, nil
}

// credentialOf returns whom the process becomes, nil if it is the server's own user.
func credentialOf(name string) (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	if name == "" {
		return nil, errors.New("card.user is missing: the server runs as root, and the process of the card's channels must not; name a user, for example nobody")
	}
	u, err := user.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("card.user: %w", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil || uid == 0 {
		return nil, fmt.Errorf("card.user is %q, which is root; name a user without privileges, for example nobody", name)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("card.user: group %q: %w", u.Gid, err)
	}
	c := &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	groups, err := u.GroupIds() // one of them may own the device files
	if err != nil {
		return nil, fmt.Errorf("card.user: groups of %q: %w", name, err)
	}
	for _, g := range groups {
		if n, err := strconv.ParseUint(g, 10, 32); err == nil && n != 0 {
			c.Groups = append(c.Groups, uint32(n))
		}
	}
	return c, nil
}
