// Package lab_test runs machines of package lab without a driver.
package lab_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/cmd/lab"
	"github.com/umbra-gpu/umbra/cmd/lab/labtest"
	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/tests/rig"
	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// deadline ends what hangs.
const deadline = 4 * time.Minute

// TestMachine uses one machine with two devices: the guest finds both, also after a reboot
// and a reset, and a kill ends it.
func TestMachine(t *testing.T) {
	scale.ReleaseOnly(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*deadline)
	defer cancel()
	s := rig.New(t, testserver.SharedConfig{})
	s.Add(aggregator.GuestConfig{Name: "a"})
	s.Add(aggregator.GuestConfig{Name: "b"})
	dir := t.TempDir()
	vm := labtest.Start(t, lab.Config{Sockets: []string{s.GPUs[0].Socket, s.GPUs[1].Socket}, Reboot: true, CPUs: 1, Memory: 512, Dir: dir})
	var pci proto.PCIResult
	require.NoError(t, vm.Agent().Call(ctx, proto.CmdPCI, proto.PCIArgs{Vendor: 0x10de}, &pci))
	require.Len(t, pci.Functions, 2)
	for _, f := range pci.Functions {
		require.EqualValues(t, gf100.DeviceID, f.Device)
		require.EqualValues(t, gf100.SpaceSize, f.BARs[0].Size)
	}
	log, err := vm.KernelLog(ctx)
	require.NoError(t, err)
	require.Contains(t, log[0].Text, "Linux version "+vm.Kernel())
	require.Equal(t, lab.LevelNotice, log[0].Level)

	require.NoError(t, vm.Reboot(ctx))
	require.NoError(t, vm.Reset(ctx))
	require.Equal(t, 3, vm.Agent().Boots())
	boots := 0
	for _, l := range vm.Console() {
		if strings.Contains(l.Text, "Linux version ") {
			boots++
		}
	}
	require.Equal(t, 3, boots, "the console has the lines of each boot")

	pid := vm.PID()
	vm.Kill()
	require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH, "the process was reaped")
	require.ErrorContains(t, vm.Wait(ctx), "killed")
	require.ErrorContains(t, vm.Agent().Call(ctx, proto.CmdPing, nil, nil), "ended")
	for range 2 {
		require.NoError(t, vm.Close())
	}
	for _, name := range []string{"console.log", "qemu.log", "command"} {
		require.FileExists(t, filepath.Join(dir, name))
	}
}

// The end of the context ends the machine.
func TestContextEndsMachine(t *testing.T) {
	labtest.Need(t)
	ctx, cancel := context.WithCancel(t.Context())
	vm, err := lab.Start(ctx, lab.Config{NoWait: true, CPUs: 1, Memory: 256, Accel: lab.AccelTCG})
	require.NoError(t, err)
	cancel()
	select {
	case <-vm.Done():
	case <-time.After(deadline):
		t.Fatal("QEMU still runs")
	}
	dir := vm.Dir()
	require.NoError(t, vm.Close())
	require.NoDirExists(t, dir)
}

// A machine that does not start, or whose guest hangs, is a clear error.
func TestStartFails(t *testing.T) {
	labtest.Need(t)
	_, err := lab.Start(t.Context(), lab.Config{QEMUArgs: []string{"-device", "no-such-device"}, Accel: lab.AccelTCG})
	require.ErrorContains(t, err, "no-such-device")
	_, err = lab.Start(t.Context(), lab.Config{BootTimeout: time.Millisecond, Accel: lab.AccelTCG})
	require.ErrorContains(t, err, "the console was silent for 1ms")
	require.ErrorContains(t, err, "qemu-system", "the error has the command")
	_, err = lab.Start(t.Context(), lab.Config{Chip: lab.ChipGH100, Kernel: "6.12"})
	require.ErrorContains(t, err, "has no driver for a gh100; 6.18, 7.2, 7.3 have one: take --kernel 7.2")
}

// QEMU dies with the process that started it, however that ends. The test runs itself
// as that process.
func TestNoOrphans(t *testing.T) {
	const env = "UMBRA_LAB_ORPHAN"
	if dir := os.Getenv(env); dir != "" {
		vm, err := lab.Start(context.Background(), lab.Config{NoWait: true, CPUs: 1, Memory: 256, Accel: lab.AccelTCG, Dir: dir})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "pid"), []byte(strconv.Itoa(vm.PID())), 0o644))
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGKILL))
	}
	labtest.Need(t)
	dir := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	p, err := os.StartProcess(self, []string{self, "-test.run=^TestNoOrphans$"}, &os.ProcAttr{Env: append(os.Environ(), env+"="+dir, "TMPDIR="+dir)})
	require.NoError(t, err)
	_, err = p.Wait()
	require.NoError(t, err)
	pid, err := os.ReadFile(filepath.Join(dir, "pid"))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile("/proc/" + string(pid) + "/stat")
		_, state, _ := strings.Cut(string(stat), ") ")
		return err != nil || strings.HasPrefix(state, "Z") // it may be a zombie still
	}, deadline, 20*time.Millisecond)
}
