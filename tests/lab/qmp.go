package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
)

// QMPEvent is something QEMU tells unasked: SHUTDOWN, RESET, STOP, ...
type QMPEvent struct {
	Name string
	Data json.RawMessage
}

// qmp is a client of QEMU's monitor. run is its only reader; mu guards the
// rest, and is held while a command is written.
type qmp struct {
	conn   net.Conn
	events *journal[QMPEvent]

	mu      sync.Mutex
	next    uint64
	pending map[uint64]chan qmpReply
	gone    error
}

type qmpReply struct {
	Return json.RawMessage
	Err    error
}

func newQMP(conn net.Conn) *qmp {
	return &qmp{conn: conn, events: newJournal[QMPEvent](), pending: make(map[uint64]chan qmpReply)}
}

// errGone ends what waits on a machine that has ended.
var errGone = errors.New("the virtual machine has ended")

// run reads until the connection ends.
func (q *qmp) run() {
	dec := json.NewDecoder(bufio.NewReader(q.conn))
	for {
		var m struct {
			ID     uint64          `json:"id"`
			Return json.RawMessage `json:"return"`
			Error  *struct {
				Class string `json:"class"`
				Desc  string `json:"desc"`
			} `json:"error"`
			Event string          `json:"event"`
			Data  json.RawMessage `json:"data"`
		}
		if err := dec.Decode(&m); err != nil {
			break
		}
		if m.Event != "" {
			q.events.add(QMPEvent{Name: m.Event, Data: m.Data})
			continue
		}
		r := qmpReply{Return: m.Return}
		if m.Error != nil {
			r.Err = fmt.Errorf("%s (%s)", m.Error.Desc, m.Error.Class)
		}
		q.mu.Lock()
		if ch := q.pending[m.ID]; ch != nil {
			delete(q.pending, m.ID)
			ch <- r
		}
		q.mu.Unlock()
	}
	q.mu.Lock()
	q.gone = errGone
	for _, ch := range q.pending {
		ch <- qmpReply{Err: errGone}
	}
	clear(q.pending)
	q.mu.Unlock()
	q.events.close(errGone)
}

// execute runs one monitor command.
func (q *qmp) execute(ctx context.Context, cmd string, args, result any) error {
	ch := make(chan qmpReply, 1)
	q.mu.Lock()
	if q.gone != nil {
		q.mu.Unlock()
		return fmt.Errorf("monitor command %s: %w", cmd, q.gone)
	}
	q.next++
	id := q.next
	m := map[string]any{"execute": cmd, "id": id}
	if args != nil {
		m["arguments"] = args
	}
	data, err := json.Marshal(m)
	if err == nil {
		q.pending[id] = ch
		_, err = q.conn.Write(append(data, '\n'))
	}
	if err != nil {
		delete(q.pending, id)
	}
	q.mu.Unlock()
	if err != nil {
		return fmt.Errorf("monitor command %s: %w", cmd, err)
	}
	select {
	case <-ctx.Done():
		q.mu.Lock()
		delete(q.pending, id)
		q.mu.Unlock()
		return fmt.Errorf("monitor command %s: %w", cmd, context.Cause(ctx))
	case r := <-ch:
		if r.Err != nil {
			return fmt.Errorf("monitor command %s: %w", cmd, r.Err)
		}
		if result != nil {
			return json.Unmarshal(r.Return, result)
		}
		return nil
	}
}
