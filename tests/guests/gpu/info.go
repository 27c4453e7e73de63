package gpu

import (
	"errors"
	"fmt"

	"github.com/umbra-gpu/umbra/tests/guests/drm"
	"github.com/umbra-gpu/umbra/tests/guests/push"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
)

// Info asks the driver what the card is.
func (e *Env) Info() (res proto.InfoResult, err error) {
	dev, err := e.Open()
	if err != nil {
		return res, err
	}
	defer closeInto(dev, &err)
	var units uint64
	for _, p := range []struct {
		id    uint64
		value *uint64
	}{
		{drm.ParamChipset, &res.Chipset}, {drm.ParamFBSize, &res.VRAMBytes},
		{drm.ParamGraphUnits, &units}, {drm.ParamPTimer, &res.PTimerNS},
	} {
		if *p.value, err = dev.Param(p.id); err != nil {
			return res, err
		}
	}
	res.GPCs, res.TPCs = units&0xff, units>>8&0xffffff
	return res, nil
}

// Objects tries every class of GF100 on a channel, each in both ways, and binds it. The
// error names the classes that failed.
func (e *Env) Objects() (res proto.ObjectsResult, err error) {
	s, err := e.client()
	if err != nil {
		return res, err
	}
	defer closeInto(s, &err)
	if err := s.ch.ListClasses(); err != nil {
		return res, err
	}
	for i, o := range []object{object2D, objectM2MF, object3D, objectCompute, objectCE0, objectCE1, objectSW} {
		out := tryObject(s.Stream, o, uint64(i+1))
		if out.Error != "" {
			err = errors.Join(err, fmt.Errorf("class %04x: %s", o.class, out.Error))
		}
		res.Objects = append(res.Objects, out)
	}
	return res, err
}

func tryObject(s *Stream, o object, token uint64) proto.ObjectOutcome {
	out := proto.ObjectOutcome{Class: o.class}
	handle, err := s.ch.NewObject(o.class)
	if err == nil {
		var b push.Buffer
		b.SetObject(o.subchan, o.class, o.engine)
		if o.class != push.ClassSW { // software methods trap: 0x100 is none of them
			b.Inc(o.subchan, push.GRNop, 0)
		}
		if err = s.Submit(&b); err == nil {
			err = s.Flush()
		}
		out.Bound = err == nil
		err = errors.Join(err, s.ch.FreeObject(handle))
	}
	// NVIF does not know the compatibility number of the software class.
	if o.class != push.ClassSW {
		err = errors.Join(err, s.ch.NewObjectNVIF(o.class, token))
	}
	if err != nil {
		out.Error = err.Error()
	}
	return out
}
