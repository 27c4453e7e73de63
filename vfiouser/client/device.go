package client

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// Info requests the device's description.
func (c *Client) Info() (wire.DeviceInfo, error) {
	return describe(c, wire.DeviceGetInfo, wire.DeviceInfo{Argsz: wire.DeviceInfoSize})
}

// describe sends a structure, and returns the one of the same type that is the reply.
func describe[T wire.Fixed](c *Client, cmd wire.Command, v T) (T, error) {
	q := wire.Append(nil, v)
	m, err := c.Call(cmd, q)
	if err == nil && len(m.Payload) != len(q) {
		err = fmt.Errorf("%w: %v reply of %d bytes", ErrProtocol, cmd, len(m.Payload))
	}
	if err != nil {
		return *new(T), err
	}
	return wire.Parse[T](m.Payload), nil
}

// RegionInfo is one region as the server describes it.
type RegionInfo struct {
	wire.RegionInfo
	Areas []wire.Area // mappable, from the sparse mmap capability
	File  *os.File    // the caller's to close; nil if not mappable
}

// RegionInfo asks for one region, twice if the first answer wants more room, as QEMU does.
func (c *Client) RegionInfo(index int) (RegionInfo, error) {
	argsz := uint32(wire.RegionInfoSize)
	for {
		ask := wire.RegionInfo{Argsz: argsz, Index: uint32(index)}
		m, err := c.Call(wire.DeviceGetRegionInfo, wire.Append(nil, ask))
		if err != nil {
			return RegionInfo{}, err
		}
		info, err := parseRegionInfo(m)
		if err != nil {
			return info, err
		}
		if info.Argsz <= argsz {
			return info, nil
		}
		if info.File != nil {
			info.File.Close()
			return info, fmt.Errorf("%w: a descriptor with a region info that did not fit", ErrProtocol)
		}
		argsz = info.Argsz
	}
}

func parseRegionInfo(m Message) (RegionInfo, error) {
	var info RegionInfo
	if len(m.FDs) > 0 {
		info.File = os.NewFile(uintptr(m.FDs[0]), "region")
		closeFDs(m.FDs[1:])
	}
	p := m.Payload
	if len(p) < wire.RegionInfoSize {
		return info, fmt.Errorf("%w: region info of %d bytes", ErrProtocol, len(p))
	}
	info.RegionInfo = wire.Parse[wire.RegionInfo](p)
	if info.Flags&wire.RegionFlagCaps == 0 {
		return info, nil
	}
	areas, _, err := wire.ParseSparse(p, info.CapOffset)
	if err != nil {
		return info, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	info.Areas = areas
	return info, nil
}

// Mmap maps one area of a mappable region.
func (i *RegionInfo) Mmap(a wire.Area) ([]byte, error) {
	if i.File == nil {
		return nil, fmt.Errorf("region %d is not mappable", i.Index)
	}
	return unix.Mmap(int(i.File.Fd()), int64(i.Offset+a.Offset), int(a.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// IRQInfo asks for one interrupt index.
func (c *Client) IRQInfo(index int) (wire.IRQInfo, error) {
	return describe(c, wire.DeviceGetIRQInfo, wire.IRQInfo{Argsz: wire.IRQInfoSize, Index: uint32(index)})
}

// Reset resets the device.
func (c *Client) Reset() error {
	_, err := c.Call(wire.DeviceReset, nil)
	return err
}

// Feature sends one DEVICE_FEATURE and returns the data after the fixed part of its reply.
// argsz 0 means the larger of the request's size and 64 KiB.
func (c *Client) Feature(flags, argsz uint32, data []byte) ([]byte, error) {
	if argsz == 0 {
		argsz = max(64<<10, uint32(wire.FeatureSize+len(data)))
	}
	m, err := c.Call(wire.DeviceFeature, append(wire.Append(nil, wire.Feature{Argsz: argsz, Flags: flags}), data...))
	if err != nil {
		return nil, err
	}
	if len(m.Payload) < wire.FeatureSize {
		return nil, fmt.Errorf("%w: DEVICE_FEATURE reply of %d bytes", ErrProtocol, len(m.Payload))
	}
	return m.Payload[wire.FeatureSize:], nil
}

// MigrationState returns the device's migration state, of wire.Mig*.
func (c *Client) MigrationState() (uint32, error) {
	b, err := c.Feature(wire.FeatureGet|wire.FeatureMigDeviceState, 0, nil)
	if err != nil {
		return 0, err
	}
	if len(b) != 8 {
		return 0, fmt.Errorf("%w: device state of %d bytes", ErrProtocol, len(b))
	}
	return le.Uint32(b), nil
}

// SetMigrationState asks for a migration state, of wire.Mig*.
func (c *Client) SetMigrationState(s uint32) error {
	_, err := c.Feature(wire.FeatureSet|wire.FeatureMigDeviceState, 0, le.AppendUint64(nil, uint64(s)))
	return err
}

// WriteMigration hands the device the next bytes of a state.
func (c *Client) WriteMigration(p []byte) error {
	_, err := c.Call(wire.MigDataWrite, append(wire.Append(nil, wire.MigData{Argsz: uint32(wire.MigDataSize + len(p)), Size: uint32(len(p))}), p...))
	return err
}
