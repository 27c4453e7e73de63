package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/umbra-gpu/umbra/tests/lab/proto"
)

// CallSocket runs a command in a guest that a person started with what Command prints.
// It waits until the guest program answers, for at most wait. As with Agent.Call, a
// CallError may come with a result.
func CallSocket(ctx context.Context, socket, cmd string, args any, wait time.Duration) (json.RawMessage, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("no guest at %s: %w", socket, err)
	}
	a := newAgent(conn)
	// A reply that an earlier program did not read must not match our request.
	a.next = rand.Uint64N(1 << 52)
	var reader sync.WaitGroup
	reader.Go(a.run)
	defer reader.Wait()
	defer conn.Close()

	if err := a.awake(ctx, wait); err != nil {
		return nil, fmt.Errorf("%s: %w", socket, err)
	}
	var result json.RawMessage
	err = a.Call(ctx, cmd, args, &result)
	return result, err
}

// awake waits until the guest program answers. Requests to a booting guest are lost, so
// it asks again and again.
func (a *Agent) awake(ctx context.Context, wait time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, wait,
		fmt.Errorf("the guest did not answer in %v: it has not booted, or another program uses this socket", wait))
	defer cancel()
	for step := time.Second; ; step *= 2 {
		ping, stop := context.WithTimeout(ctx, step)
		err := a.Call(ping, proto.CmdPing, nil, nil)
		stop()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !errors.Is(err, ErrRebooted) && !errors.Is(err, context.DeadlineExceeded):
			return err
		}
	}
}
