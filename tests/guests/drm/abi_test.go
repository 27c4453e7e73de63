package drm

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// The sizes that the C compiler gives the structures of drm.h, nouveau_drm.h and
// nvif/ioctl.h on a 64-bit machine.
func TestSizes(t *testing.T) {
	for name, size := range map[string][2]uintptr{
		"drm_version":                        {unsafe.Sizeof(drmVersion{}), 64},
		"drm_gem_close":                      {unsafe.Sizeof(gemClose{}), 8},
		"drm_nouveau_getparam":               {unsafe.Sizeof(getParam{}), 16},
		"drm_nouveau_channel_alloc":          {unsafe.Sizeof(channelAlloc{}), 88},
		"drm_nouveau_channel_free":           {unsafe.Sizeof(channelFree{}), 4},
		"drm_nouveau_grobj_alloc":            {unsafe.Sizeof(grobjAlloc{}), 12},
		"drm_nouveau_gpuobj_free":            {unsafe.Sizeof(gpuobjFree{}), 8},
		"drm_nouveau_gem_info":               {unsafe.Sizeof(gemInfo{}), 40},
		"drm_nouveau_gem_new":                {unsafe.Sizeof(gemNew{}), 48},
		"drm_nouveau_gem_pushbuf_bo":         {unsafe.Sizeof(pushbufBO{}), 40},
		"drm_nouveau_gem_pushbuf_push":       {unsafe.Sizeof(pushbufPush{}), 24},
		"drm_nouveau_gem_pushbuf":            {unsafe.Sizeof(gemPushbuf{}), 64},
		"drm_nouveau_gem_cpu_prep":           {unsafe.Sizeof(gemCPUPrep{}), 8},
		"drm_nouveau_gem_cpu_fini":           {unsafe.Sizeof(gemCPUFini{}), 4},
		"nvif_ioctl_v0":                      {unsafe.Sizeof(nvifHead{}), 24},
		"nvif_ioctl_new_v0":                  {unsafe.Sizeof(nvifNew{}), 32},
		"nvif_ioctl_sclass_v0":               {unsafe.Sizeof(nvifSclass{}), 8},
		"nvif_ioctl_sclass_oclass_v0":        {unsafe.Sizeof(nvifClass{}), 8},
		"drm_nouveau_gem_pushbuf_bo.presume": {unsafe.Sizeof(pushbufPresumed{}), 16},
	} {
		require.Equal(t, size[1], size[0], name)
	}
}

func TestOffsets(t *testing.T) {
	for name, off := range map[string][2]uintptr{
		"version.name_len":       {unsafe.Offsetof(drmVersion{}.NameLen), 16},
		"version.desc":           {unsafe.Offsetof(drmVersion{}.Desc), 56},
		"channel.channel":        {unsafe.Offsetof(channelAlloc{}.Channel), 8},
		"channel.notifier":       {unsafe.Offsetof(channelAlloc{}.NotifierHandle), 16},
		"channel.subchan":        {unsafe.Offsetof(channelAlloc{}.Subchan), 20},
		"channel.nr_subchan":     {unsafe.Offsetof(channelAlloc{}.NrSubchan), 84},
		"info.size":              {unsafe.Offsetof(gemInfo{}.Size), 8},
		"info.offset":            {unsafe.Offsetof(gemInfo{}.Offset), 16},
		"info.map_handle":        {unsafe.Offsetof(gemInfo{}.MapHandle), 24},
		"info.tile_flags":        {unsafe.Offsetof(gemInfo{}.TileFlags), 36},
		"new.align":              {unsafe.Offsetof(gemNew{}.Align), 44},
		"pushbuf_bo.handle":      {unsafe.Offsetof(pushbufBO{}.Handle), 8},
		"pushbuf_bo.valid":       {unsafe.Offsetof(pushbufBO{}.ValidDomains), 20},
		"pushbuf_bo.presumed":    {unsafe.Offsetof(pushbufBO{}.Presumed), 24},
		"pushbuf_push.length":    {unsafe.Offsetof(pushbufPush{}.Length), 16},
		"pushbuf.buffers":        {unsafe.Offsetof(gemPushbuf{}.Buffers), 8},
		"pushbuf.nr_push":        {unsafe.Offsetof(gemPushbuf{}.NrPush), 20},
		"pushbuf.push":           {unsafe.Offsetof(gemPushbuf{}.Push), 32},
		"pushbuf.suffix0":        {unsafe.Offsetof(gemPushbuf{}.Suffix0), 40},
		"pushbuf.vram_available": {unsafe.Offsetof(gemPushbuf{}.VRAMAvailable), 48},
		"nvif.route":             {unsafe.Offsetof(nvifHead{}.Route), 7},
		"nvif.token":             {unsafe.Offsetof(nvifHead{}.Token), 8},
		"nvif.object":            {unsafe.Offsetof(nvifHead{}.Object), 16},
		"nvif_new.route":         {unsafe.Offsetof(nvifNew{}.Route), 7},
		"nvif_new.object":        {unsafe.Offsetof(nvifNew{}.Object), 16},
		"nvif_new.oclass":        {unsafe.Offsetof(nvifNew{}.Class), 28},
	} {
		require.Equal(t, off[1], off[0], name)
	}
}

// The request numbers, as strace prints them for Mesa.
func TestRequests(t *testing.T) {
	for name, req := range map[string][2]uintptr{
		"VERSION":       {ioctlVersion, 0xc0406400},
		"GEM_CLOSE":     {ioctlGEMClose, 0x40086409},
		"GETPARAM":      {ioctlGetParam, 0xc0106440},
		"CHANNEL_ALLOC": {ioctlChannelAlloc, 0xc0586442},
		"CHANNEL_FREE":  {ioctlChannelFree, 0x40046443},
		"GROBJ_ALLOC":   {ioctlGrobjAlloc, 0x400c6444},
		"GPUOBJ_FREE":   {ioctlGpuobjFree, 0x40086446},
		"NVIF":          {ioctlNVIF(0x38), 0xc0386447},
		"GEM_NEW":       {ioctlGEMNew, 0xc0306480},
		"GEM_PUSHBUF":   {ioctlGEMPushbuf, 0xc0406481},
		"GEM_CPU_PREP":  {ioctlGEMCPUPrep, 0x40086482},
		"GEM_CPU_FINI":  {ioctlGEMCPUFini, 0x40046483},
		"GEM_INFO":      {ioctlGEMInfo, 0xc0286484},
	} {
		require.Equal(t, req[1], req[0], name)
	}
}

func TestKernelOf(t *testing.T) {
	for release, line := range map[string]string{
		"6.1.0-56-amd64":      "6.1",
		"6.5.1":               "6.1",
		"6.12.94+deb13-amd64": "6.12",
		"6.12":                "6.12",
		"6.17-rc3":            "6.12",
		"7.2.13+deb13-amd64":  "7.2",
		"8.0.1":               "7.2",
	} {
		k, err := KernelOf(release)
		require.NoError(t, err, release)
		require.Equal(t, line, k.Line, release)
	}
	for _, bad := range []string{"5.10.0", "", "six.one", "6"} {
		_, err := KernelOf(bad)
		require.Error(t, err, bad)
	}
}

// Which PBDMA errors are fatal follows from one mask of the driver.
func TestPBDMAFatal(t *testing.T) {
	bits := map[Offence]uint{OffenceBadHeader: 18, OffenceHostMethod: 21, OffenceEmptySubchan: 23}
	for o, bit := range bits {
		require.Equal(t, uint32(pbdmaFatal)>>bit&1 == 1, pbdmaKills[o], string(o))
	}
}
