package gf100

import "github.com/umbra-gpu/umbra/mmio"

var ptherm = mmio.Block{
	Name:   "PTHERM",
	Source: "envytools rnndb/pm/ptherm.xml",
	Regs: []mmio.Reg{
		{Name: "NV_PTHERM_INTR_EN", Offset: 0x20000},
		{Name: "NV_PTHERM_INTR", Offset: 0x20100, Access: mmio.W1C},
		{Name: "NV_PTHERM_TEMP", Offset: 0x20400, Access: mmio.RO, Effect: "reads the sensor in degrees Celsius"},
	},
}

type pthermUnit struct{ cfg *FaceConfig }

func (u *pthermUnit) bind(b *mmio.Bindings) {
	b.OnRead("NV_PTHERM_TEMP", func(int, uint32) uint32 { return uint32(max(0, min(u.cfg.Temperature(), 255))) })
	b.OnRead("NV_PFUSE_TEMP_CAL_OK", func(int, uint32) uint32 {
		if u.cfg.NoSensor {
			return 0
		}
		return 1
	})
}

func (u *pthermUnit) attach(*mmio.Space) {}
func (u *pthermUnit) reset()             {}
