package nvrm

import (
	"bytes"

	"gvisor.dev/gvisor/pkg/abi/nvgpu"
)

func cString(b []byte) string {
	s, _, _ := bytes.Cut(b, []byte{0})
	return string(s)
}

// Events is a file that is readable (POLLIN or POLLPRI) when there are notices of the card.
type Events struct {
	File
	client *Client
}

// Notice is something that the card reported.
type Notice struct {
	Error  bool // a channel has stopped
	Engine int  // work of it has ended, of any client: Graphics or a copy engine
}

// Listen opens a file of events. It reports errors.
func (c *Client) Listen() (*Events, error) {
	f, err := c.newFile()
	if err != nil {
		return nil, err
	}
	e := &Events{f, c}
	a := nvgpu.IoctlAllocOSEvent{HClient: handle(c.root), HDevice: handle(c.device), FD: uint32(f.OS().Fd())}
	err = check("open a file of events", call(f, nvgpu.NV_ESC_ALLOC_OS_EVENT, &a), a.Status)
	if err == nil {
		err = e.listen(notifyError, 0)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return e, nil
}

// Engine makes the file also report that work has ended on an engine.
func (e *Events) Engine(engine int) error {
	const ended = 1 << 27 // NV01_EVENT_NONSTALL_INTR
	return e.listen(notifierOf(engine), ended)
}

func (e *Events) listen(notifier, flags uint32) error {
	c := e.client
	p := nvgpu.NV0005_ALLOC_PARAMETERS{HParentClient: handle(c.root), HSrcResource: handle(c.subdevice), HClass: classEvent, NotifyIndex: notifier | flags, Data: nvgpu.P64(e.OS().Fd())}
	if _, err := alloc(c, "listen to events", c.subdevice, classEvent, &p); err != nil {
		return err
	}
	return control(c, "arm events", c.subdevice, ctrlNotification, &notificationParams{Event: notifier, Action: notifyRepeat})
}

func notifierOf(engine int) uint32 {
	if engine == Graphics {
		return notifyGraphics
	}
	return notifyCopy + uint32(engine)
}

// Next takes a notice. ok is false if there is none.
func (e *Events) Next() (n Notice, ok bool, err error) {
	var d eventData
	var a eventParams
	err = pinned(&d, func(addr uint64, _ uint32) error {
		a.Data = addr
		return call(e.File, escGetEventData, &a)
	})
	if err != nil || a.Status != 0 {
		return n, false, err
	}
	n = Notice{Error: d.Notifier == notifyError, Engine: Graphics}
	if d.Notifier >= notifyCopy && d.Notifier < notifyCopy+10 {
		n.Engine = int(d.Notifier - notifyCopy)
	}
	return n, true, nil
}
