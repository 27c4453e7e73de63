package sandbox

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Serve judges the calls that a filter asks about, until no process has the filter. may gets a call's arguments as they are
// in registers, which do not change any more. It belongs to another process than the one that is confined.
func Serve(listener *os.File, may func(args [6]uint64) bool) error {
	fd := int(listener.Fd())
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(poll, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if poll[0].Revents&unix.POLLIN == 0 {
			if poll[0].Revents != 0 {
				return nil
			}
			continue
		}
		var n notification
		if err := receive(fd, &n); errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINTR) {
			continue // its thread was killed
		} else if err != nil {
			return err
		}
		j := judgement{id: n.id, error: -int32(unix.EPERM)}
		if may(n.args) {
			j.error, j.flags = 0, unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE
		}
		if err := judge(fd, &j); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
}
