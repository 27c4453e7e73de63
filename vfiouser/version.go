package vfiouser

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"syscall"

	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// version serves VERSION: the first message, and the last of its kind.
func (c *conn) version(rq *request) syscall.Errno {
	if major := le.Uint16(rq.payload); major != 0 {
		c.refused = true
		return syscall.EINVAL
	}
	limits, err := parseCapabilities(rq.payload[wire.VersionSize:])
	if err != nil {
		return syscall.EINVAL
	}
	migrator, _ := c.dev.(Migrator)
	if migrator != nil && limits.migrationPgs != 0 && limits.migrationPgs != pageSize {
		return syscall.EINVAL
	}
	limits.writeMulti = limits.writeMulti && !c.srv.opts.NoWriteMulti
	c.client = limits
	c.migrator = migrator
	if err := c.attach(); err != nil {
		return errnoOf(err)
	}
	c.state = stateRunning
	add(&c.srv.stats.Clients, 1)

	room := len(rq.payload) - wire.VersionSize
	text := c.srv.opts.capabilities(&limits, migrator != nil, room)
	b := c.body(wire.VersionSize + len(text)) // major 0, minor 0
	copy(b[wire.VersionSize:], text)
	return 0
}

// attach gives the device its host and reads its regions and interrupts.
func (c *conn) attach() (err error) {
	err = syscall.EIO // of a panic
	c.contain("Attached", func() { err = c.tryAttach() })
	if err != nil && c.attached {
		c.attached = false
		c.contain("Detached", c.dev.Detached)
	}
	return err
}

func (c *conn) tryAttach() error {
	if err := Admit(c.dev); err != nil {
		add(&c.srv.stats.Refused, 1)
		c.srv.warn(&c.srv.logAdmit, "vfio-user client refused", slog.Any("error", err))
		return err
	}
	c.attached = true
	c.dev.Attached(NewHost(c))
	regions, irqs := c.dev.Regions(), c.dev.IRQs()
	if err := checkRegions(regions); err != nil {
		return err
	}
	if err := checkIRQs(irqs); err != nil {
		return err
	}
	c.regions, c.irqInfos = [NumRegions]Region{}, [NumIRQs]IRQ{}
	copy(c.regions[:], regions)
	copy(c.irqInfos[:], irqs)
	c.irqs.open(irqs)
	c.observer, _ = c.dev.(IRQObserver)
	return nil
}

// capabilities is the JSON of a reply, NUL included, in at most room bytes; nil if not even
// the first capability fits. A client that gets none uses the specification's defaults.
func (o *Options) capabilities(client *clientLimits, migration bool, room int) []byte {
	caps := []struct {
		offered bool
		text    string
	}{
		{true, fmt.Sprintf(`"max_msg_fds":%d`, maxMsgFDs)},
		{client.writeMulti, `"write_multiple":true`},
		{true, fmt.Sprintf(`"max_data_xfer_size":%d`, o.MaxDataXfer)},
		{true, fmt.Sprintf(`"max_dma_maps":%d`, o.MaxDMARegions)},
		{true, fmt.Sprintf(`"pgsizes":%d`, pageSize)},
		{migration, fmt.Sprintf(`"migration":{"pgsize":%d}`, pageSize)},
	}
	const head, tail = `{"capabilities":{`, "}}\x00"
	text := []byte(head)
	for _, k := range caps {
		comma := 0
		if len(text) > len(head) {
			comma = 1
		}
		if !k.offered || len(text)+comma+len(k.text)+len(tail) > room {
			continue
		}
		text = append(append(text, ","[:comma]...), k.text...)
	}
	if len(text) == len(head) {
		return nil
	}
	return append(text, tail...)
}

// parseCapabilities reads the JSON of a VERSION request. A capability that is unknown is
// passed over, one of the wrong type is an error.
func parseCapabilities(text []byte) (clientLimits, error) {
	limits := clientLimits{maxMsgFDs: wire.DefaultMaxMsgFDs, maxDataXfer: wire.DefaultMaxDataXfer}
	if len(text) == 0 {
		return limits, nil
	}
	if text[len(text)-1] != 0 {
		return limits, fmt.Errorf("vfiouser: capabilities are not NUL-terminated")
	}
	text = text[:bytes.IndexByte(text, 0)]
	var doc map[string]json.RawMessage
	if err := json.Unmarshal(text, &doc); err != nil {
		return limits, err
	}
	// The fields that nothing reads are here for their types.
	caps := struct {
		MaxMsgFDs     uint64 `json:"max_msg_fds"`
		MaxDataXfer   uint64 `json:"max_data_xfer_size"`
		MaxDMAMaps    uint64 `json:"max_dma_maps"`
		PgSizes       uint64 `json:"pgsizes"`
		WriteMultiple bool   `json:"write_multiple"`
		Migration     struct {
			PgSize        uint64 `json:"pgsize"`
			MaxBitmapSize uint64 `json:"max_bitmap_size"`
		}
	}{MaxMsgFDs: wire.DefaultMaxMsgFDs, MaxDataXfer: wire.DefaultMaxDataXfer}
	raw, ok := doc["capabilities"]
	if !ok {
		return limits, nil
	}
	if raw[0] != '{' { // null decodes into a structure without complaint
		return limits, fmt.Errorf("vfiouser: capabilities are not an object")
	}
	if err := json.Unmarshal(raw, &caps); err != nil {
		return limits, err
	}
	if caps.MaxMsgFDs > 1024 {
		return limits, fmt.Errorf("vfiouser: max_msg_fds %d is over 1024", caps.MaxMsgFDs)
	}
	return clientLimits{
		maxMsgFDs:    int(caps.MaxMsgFDs),
		maxDataXfer:  uint32(min(caps.MaxDataXfer, math.MaxUint32)),
		writeMulti:   caps.WriteMultiple,
		migrationPgs: caps.Migration.PgSize,
	}, nil
}
