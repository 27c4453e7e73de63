package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/umbra-gpu/umbra/tests/lab/proto"
)

// Tell has the agent behind a socket, of a machine that a person started with what
// Command prints, run one command, and returns its result. As with Call, a CallError
// may come with a result. args may be nil.
//
// The command is sent only when the agent has answered a ping, for at most patience:
// what is said to a guest that boots is lost, and what is said while another program
// has the socket is heard when that has gone.
func Tell(ctx context.Context, socket, cmd string, args any, patience time.Duration, progress io.Writer) (json.RawMessage, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: there is no such socket: its guest has ended, or was not started with what \"lab command\" prints; the path= of its agent there says which socket to name", socket)
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("%s: nobody listens there: its QEMU has ended, start it again", socket)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", socket, err)
	}
	a := newAgent(conn)
	// The answer that an earlier program did not wait for must not be taken for ours.
	a.next = rand.Uint64N(1 << 52)
	var reader sync.WaitGroup
	reader.Go(a.run)
	defer reader.Wait()
	defer conn.Close()

	if err := a.awake(ctx, patience, func() {
		fmt.Fprintf(progress, "%s: no word from the guest's agent yet; waiting up to %v\n", socket, patience)
	}); err != nil {
		return nil, fmt.Errorf("%s: %w", socket, err)
	}
	var result json.RawMessage
	if err := a.Call(ctx, cmd, args, &result); err != nil {
		return result, fmt.Errorf("%s: %w", socket, err)
	}
	return result, nil
}

// awake returns when the agent has answered. slow is called once if that is not at once.
func (a *Agent) awake(ctx context.Context, patience time.Duration, slow func()) error {
	const first = time.Second
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no word from the guest's agent in %v: its guest has not booted, its console says how far it is; or another program has this socket, which serves one at a time: end it", patience))
	defer cancel()
	// A guest that is busy answers late: each ping is waited for longer than the one before.
	for wait := first; ; wait *= 2 {
		ping, stop := context.WithTimeout(ctx, wait)
		err := a.Call(ping, proto.CmdPing, nil, nil)
		stop()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, ErrRebooted): // it says that it is ready
		case errors.Is(err, errGone):
			return fmt.Errorf("the connection ended: its QEMU has: %w", err)
		case !errors.Is(err, context.DeadlineExceeded):
			return err
		case wait == first:
			slow()
		}
	}
}
