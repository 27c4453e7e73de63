package serve

import (
	"log/slog"

	"github.com/umbra-gpu/umbra/vfiouser"
)

// maxClientLines bounds the clients with lines in the log between two polls. A program that connects over and over, such as
// umbra vfio-user check, causes one line more, with their count.
const maxClientLines = 8

// clientLog is what the log has of a device's clients. Device.mu guards it.
type clientLog struct {
	lines int    // clients that attached with a line since the last poll
	quiet bool   // the attached client has no line yet
	brief uint64 // clients that left without a line
}

// Attached implements vfiouser.Device.
func (d *Device) Attached(h *vfiouser.Host) {
	pid, user := 0, ""
	if p := h.Peer(); p != nil {
		pid, user = int(p.Pid), userName(p.Uid)
	}
	d.mu.Lock()
	d.pid, d.user = pid, user
	d.clients.quiet = d.clients.lines >= maxClientLines
	if !d.clients.quiet {
		d.clients.lines++
		d.logAttached(pid, user)
	}
	d.mu.Unlock()
	d.client = &hostSide{Memory: h.Memory(), host: h, device: d}
	d.plug(d.client)
}

func (d *Device) logAttached(pid int, user string) {
	about := []any{}
	if user != "" {
		about = []any{"pid", pid, "user", user}
	}
	d.log.Info("client attached", about...)
}

// Detached implements vfiouser.Device. Windows are closed first: the client may still
// write to its mappings, and their pages must return to VRAM before it is cleared.
func (d *Device) Detached() {
	if err := d.maps.CloseWindows(); err != nil {
		d.log.Warn("cannot close the windows of the client", "error", err)
	}
	d.plug(nil)
	d.client = nil
	d.asked = false
	d.mu.Lock()
	quiet := d.clients.quiet
	if quiet {
		d.clients.quiet = false
		d.clients.brief++
	}
	d.mu.Unlock()
	d.Dismissed()
	if !quiet {
		d.log.Info("client detached")
	}
}

// logClientsLocked logs an attached client without a line, and how many came and went without one.
// Endpoint.logMu is held.
func (e *Endpoint) logClientsLocked(log *slog.Logger) {
	d := e.Device
	d.mu.Lock()
	late, pid, user, brief := d.clients.quiet, d.pid, d.user, d.clients.brief
	d.clients.lines, d.clients.quiet = 0, false
	if late { // before it can leave
		d.logAttached(pid, user)
	}
	d.mu.Unlock()
	if n := e.newLocked("brief_clients", brief); n > 0 {
		log.Info("more clients attached and detached than are logged", "count", n, "total", brief)
	}
}
