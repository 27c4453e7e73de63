package gpu

import (
	"errors"
	"fmt"

	"github.com/umbra-gpu/umbra/tests/guests/drm"
	"github.com/umbra-gpu/umbra/tests/guests/push"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
)

var params = []struct {
	name string
	id   uint64
}{
	{"pci_vendor", drm.ParamPCIVendor}, {"pci_device", drm.ParamPCIDevice}, {"bus_type", drm.ParamBusType},
	{"fb_size", drm.ParamFBSize}, {"agp_size", drm.ParamAGPSize}, {"chipset_id", drm.ParamChipset},
	{"graph_units", drm.ParamGraphUnits}, {"ptimer_time", drm.ParamPTimer}, {"has_bo_usage", drm.ParamHasBOUsage},
	{"has_pageflip", drm.ParamHasPageflip}, {"exec_push_max", drm.ParamExecPushMax},
	{"vram_bar_size", drm.ParamVRAMBARSize}, {"vram_used", drm.ParamVRAMUsed},
}

// Info asks for every GETPARAM value.
func (e *Env) Info(a proto.NodeArgs) (res proto.InfoResult, err error) {
	dev, err := e.Open(a.Node)
	if err != nil {
		return res, err
	}
	defer closeInto(dev, &err)
	v, err := dev.Version()
	if err != nil {
		return res, err
	}
	res.Driver, res.Version = v.Name, fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch)
	res.Params = map[string]uint64{}
	for _, p := range params {
		value, err := dev.Param(p.id)
		if err != nil {
			res.Unknown = append(res.Unknown, p.name)
			continue
		}
		res.Params[p.name] = value
	}
	res.Chipset, res.VRAMBytes, res.GARTBytes = res.Params["chipset_id"], res.Params["fb_size"], res.Params["agp_size"]
	units := res.Params["graph_units"]
	res.GPCs, res.TPCs, res.ROPs = units&0xff, units>>8&0xffffff, units>>32
	res.PTimerNS, err = dev.Param(drm.ParamPTimer)
	return res, err
}

// Objects tries every class of GF100 on a channel, each in both ways, and binds it. The
// error names the classes that failed.
func (e *Env) Objects(a proto.NodeArgs) (res proto.ObjectsResult, err error) {
	s, err := e.client(a.Node)
	if err != nil {
		return res, err
	}
	defer closeInto(s, &err)
	res.Channel = s.ch.ID()
	classes, err := s.ch.Classes()
	if err != nil {
		return res, err
	}
	for _, c := range classes {
		res.Listed = append(res.Listed, c.ID)
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
	out.Grobj = drm.Errno(err)
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
		nvif := s.ch.NewObjectNVIF(o.class, token)
		out.NVIF = drm.Errno(nvif)
		err = errors.Join(err, nvif)
	}
	if err != nil {
		out.Error = err.Error()
	}
	return out
}
