package api

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// maxConns is how many connections a listener has at a time.
const maxConns = 256

// conns are the connections of a listener. Of too many, one that waits for its next request for the longest
// time is closed, so that idle clients keep nobody away.
type conns struct {
	mu    sync.Mutex
	since map[net.Conn]time.Time // of the present state; zero while it has a request
}

// note implements http.Server.ConnState.
func (c *conns) note(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateActive:
		c.since[conn] = time.Time{}
		return
	case http.StateNew, http.StateIdle:
		c.since[conn] = time.Now()
	default:
		delete(c.since, conn)
		return
	}
	if len(c.since) <= maxConns {
		return
	}
	oldest := conn
	for other, at := range c.since {
		if !at.IsZero() && at.Before(c.since[oldest]) {
			oldest = other
		}
	}
	delete(c.since, oldest)
	go oldest.Close() // which may wait for files that a client passed
}
