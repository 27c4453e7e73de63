package gf100

import "github.com/umbra-gpu/umbra/mmio"

// ptherm is the temperature sensor and what watches it. Thresholds are stored:
// drivers of this chip poll the sensor once a second.
var ptherm = mmio.Block{
	Name:   "PTHERM",
	Source: "envytools rnndb/pm/ptherm.xml",
	Regs: []mmio.Reg{
		stub("NV_PTHERM_CTRL_0", 0x20000),
		stub("NV_PTHERM_CTRL_1", 0x20004),
		{Name: "NV_PTHERM_SENSOR_RAW", Offset: 0x20008, Stub: true},
		stub("NV_PTHERM_SENSOR_CALIB_0", 0x2000c),
		stub("NV_PTHERM_SENSOR_SW_CALIB", 0x20010),
		stub("NV_PTHERM_SENSOR_HW_CALIB_0", 0x20014),
		stub("NV_PTHERM_FSRM_CFG_0", 0x20060),
		{Name: "NV_PTHERM_INTR", Offset: 0x20100, Access: mmio.W1C},
		{Name: "NV_PTHERM_I2C_SLAVE_TEMP_HIGH", Offset: 0x20400, Access: mmio.RO, Effect: "reads the sensor in degrees Celsius"},
		stub("NV_PTHERM_I2C_SLAVE_THRESHOLD_4", 0x20414),
		stub("NV_PTHERM_I2C_SLAVE_THRESHOLD_CRIT", 0x20480),
		stub("NV_PTHERM_I2C_SLAVE_THRESHOLD_CRIT_HYST_DISABLE", 0x20484),
		stub("NV_PTHERM_I2C_SLAVE_THRESHOLD_2", 0x204c0),
		stub("NV_PTHERM_I2C_SLAVE_THRESHOLD_1", 0x204c4),
	},
}
