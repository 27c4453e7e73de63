package gpu

import (
	"errors"
	"fmt"

	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/devmodel/guest/push"
	"github.com/umbra-gpu/umbra/tests/guests/drm"
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
	for i, o := range []push.Object{object2D, push.M2MF.Object(), object3D, objectCompute, push.CE0.Object(), push.CE1.Object(), objectSW} {
		out := tryObject(s.Stream, o, uint64(i+1))
		if out.Error != "" {
			err = errors.Join(err, fmt.Errorf("class %04x: %s", o.Class, out.Error))
		}
		res.Objects = append(res.Objects, out)
	}
	return res, err
}

func tryObject(s *Stream, o push.Object, token uint64) proto.ObjectOutcome {
	out := proto.ObjectOutcome{Class: o.Class}
	handle, err := s.ch.NewObject(o.Class)
	if err == nil {
		var b push.Buffer
		b.SetObject(o)
		if o.Class != push.ClassSW { // software methods trap: 0x100 is none of them
			b.Inc(o.Subchan, push.GRNop, 0)
		}
		if err = s.Submit(&b); err == nil {
			err = s.Flush()
		}
		out.Bound = err == nil
		err = errors.Join(err, s.ch.FreeObject(handle))
	}
	// NVIF does not know the compatibility number of the software class.
	if o.Class != push.ClassSW {
		err = errors.Join(err, s.ch.NewObjectNVIF(o.Class, token))
	}
	if err != nil {
		out.Error = err.Error()
	}
	return out
}
