package gf100

import "github.com/umbra-gpu/umbra/mmio"

// i2cIdle is the idle level of a bus with pull-ups and no device.
const i2cIdle = 0x3

// pnvio has the board's pins: GPIO, I2C, AUX channels, the fan, and two PLLs. Nothing is
// connected.
var pnvio = mmio.Block{
	Name:   "PNVIO",
	Source: "envytools rnndb/io/pnvio.xml",
	Regs: []mmio.Reg{
		{Name: "NV_PNVIO_GPIO_INTR_EN_0", Offset: 0xe050},
		{Name: "NV_PNVIO_GPIO_INTR_0", Offset: 0xe054, Access: mmio.W1C},
		{Name: "NV_PNVIO_AUXCH_INTR_EN", Offset: 0xe068},
		{Name: "NV_PNVIO_AUXCH_INTR", Offset: 0xe06c, Access: mmio.W1C},
		{Name: "NV_PNVIO_GPIO_INTR_EN_1", Offset: 0xe070},
		{Name: "NV_PNVIO_GPIO_INTR_1", Offset: 0xe074, Access: mmio.W1C},
		stub("NV_PNVIO_GPIO_MODE_0", 0xe100),
		stub("NV_PNVIO_GPIO_0", 0xe104),
		stub("NV_PNVIO_GPIO_1", 0xe108),
		stubs("NV_PNVIO_PWM_DIVISOR", 0xe114, 2, 8),
		stubs("NV_PNVIO_PWM_DUTY", 0xe118, 2, 8),
		i2cPort("NV_PNVIO_I2C_PORT_0_BITBANG", 0xe138),
		i2cPort("NV_PNVIO_I2C_PORT_1_BITBANG", 0xe150),
		i2cPort("NV_PNVIO_I2C_PORT_2_BITBANG", 0xe168),
		i2cPort("NV_PNVIO_I2C_PORT_3_BITBANG", 0xe180),
		i2cPort("NV_PNVIO_I2C_PORT_4_BITBANG", 0xe254),
		i2cPort("NV_PNVIO_I2C_PORT_5_BITBANG", 0xe274),
		stub("NV_PNVIO_GPIO_2", 0xe280),
		stub("NV_PNVIO_GPIO_3", 0xe284),
		stub("NV_PNVIO_GPIO_MODE_1", 0xe28c),
		{Name: "NV_PNVIO_AUXCH_DATA_OUT", Offset: 0xe4c0, Rep: []mmio.Dim{auxChannels, {Count: 4, Stride: 4}}, Stub: true},
		{Name: "NV_PNVIO_AUXCH_DATA_IN", Offset: 0xe4d0, Rep: []mmio.Dim{auxChannels, {Count: 4, Stride: 4}}, Access: mmio.RO, Stub: true},
		{Name: "NV_PNVIO_AUXCH_ADDR", Offset: 0xe4e0, Rep: []mmio.Dim{auxChannels}, Stub: true},
		{Name: "NV_PNVIO_AUXCH_CTRL", Offset: 0xe4e4, Rep: []mmio.Dim{auxChannels}, Stub: true},
		{Name: "NV_PNVIO_AUXCH_STAT", Offset: 0xe4e8, Rep: []mmio.Dim{auxChannels}, Access: mmio.RO, Stub: true}, // no sink
		{Name: "NV_PNVIO_AUXCH_SETUP", Offset: 0xe500, Rep: []mmio.Dim{auxChannels}, Stub: true},
		{Name: "NV_PNVIO_AUXCH_UNK4C", Offset: 0xe50c, Rep: []mmio.Dim{auxChannels}, Stub: true},
		stub("NV_PNVIO_FAN_TACH_CONFIG", 0xe720),
		stub("NV_PNVIO_FAN_TACH_PERIOD", 0xe724),
		{Name: "NV_PNVIO_FAN_TACH_COUNT", Offset: 0xe728, Access: mmio.RO, Stub: true},
		i2cPort("NV_PNVIO_I2C_PORT_6_BITBANG", 0xe764),
		i2cPort("NV_PNVIO_I2C_PORT_7_BITBANG", 0xe780),
		i2cPort("NV_PNVIO_I2C_PORT_8_BITBANG", 0xe79c),
		i2cPort("NV_PNVIO_I2C_PORT_9_BITBANG", 0xe7b8),
		stub("NV_PNVIO_RPLL1_CTRL", 0xe800),
		stub("NV_PNVIO_RPLL1_COEF", 0xe804),
		stub("NV_PNVIO_RPLL2_CTRL", 0xe820),
		stub("NV_PNVIO_RPLL2_COEF", 0xe824),
		stub("NV_PNVIO_UNK840", 0xe840),
	},
}

var auxChannels = mmio.Dim{Count: 4, Stride: 0x50}

// i2cPort is a two-wire port: bit 0 the clock, bit 1 the data line. With no
// device to pull them low, the lines are what was written.
func i2cPort(name string, off uint32) mmio.Reg {
	return mmio.Reg{Name: name, Offset: off, Reset: i2cIdle}
}
