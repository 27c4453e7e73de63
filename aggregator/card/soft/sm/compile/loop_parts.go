package compile

// partsText are what Blocks calls: settle lets warps go on whose barrier is complete, and begin makes the
// state of a new block.
const partsText = `
define internal i1 @settle(ptr %head, ptr %all, i32 %n, i32 %from, i32 %to) #0 {
  %running = load i32 at %head $Block.Running
  br label %bars
bars:
  %id = phi i32 [ %from, %0 ], [ %id1, %nextBar ]
  %all16 = icmp uge i32 %id, %to
  br i1 %all16, label %yes, label %bar
bar:
  %id64 = zext i32 %id to i64
  %bOff = mul i64 %id64, $BarrierSize
  %first = getelementptr i8, ptr %head, i64 $Block.Barriers
  %b = getelementptr i8, ptr %first, i64 %bOff
  %arrived = load i32 at %b $Barrier.Arrived
  %used = icmp ne i32 %arrived, 0
  br i1 %used, label %compare, label %nextBar
compare:
  %expected = load i32 at %b $Barrier.Expected
  %unbounded = icmp eq i32 %expected, 0
  %want = select i1 %unbounded, i32 %running, i32 %expected
  %complete = icmp uge i32 %arrived, %want
  br i1 %complete, label %check, label %nextBar

check:
  %ci = phi i32 [ 0, %compare ], [ %ci1, %checkNext ]
  %cEnd = icmp uge i32 %ci, %n
  br i1 %cEnd, label %wake, label %checkOne
checkOne:
  %ci64 = zext i32 %ci to i64
  %cOff = mul i64 %ci64, $WarpSize
  %cw = getelementptr i8, ptr %all, i64 %cOff
  %cWait = load i32 at %cw $Warp.Wait
  %cQuiet = load i32 at %cw $Warp.Quiet
  %cHere = icmp eq i32 %cWait, %id
  %loud = icmp eq i32 %cQuiet, 0
  %wrong = and i1 %cHere, %loud
  br i1 %wrong, label %no, label %checkNext
checkNext:
  %ci1 = add i32 %ci, 1
  br label %check

wake:
  %wi = phi i32 [ 0, %check ], [ %wi1, %wakeNext ]
  %wEnd = icmp uge i32 %wi, %n
  br i1 %wEnd, label %woken, label %wakeOne
wakeOne:
  %wi64 = zext i32 %wi to i64
  %wOff = mul i64 %wi64, $WarpSize
  %ww = getelementptr i8, ptr %all, i64 %wOff
  %wWait = load i32 at %ww $Warp.Wait
  %wHere = icmp eq i32 %wWait, %id
  br i1 %wHere, label %wakes, label %wakeNext
wakes:
  store i32 -1 at %ww $Warp.Wait
  br label %wakeNext
wakeNext:
  %wi1 = add i32 %wi, 1
  br label %wake
woken:
  store i32 0 at %b $Barrier.Arrived
  store i32 0 at %b $Barrier.Expected
  store i32 0 at %b $Barrier.True
  store i32 0 at %b $Barrier.Any
  store i32 0 at %b $Barrier.Not
  br label %nextBar
nextBar:
  %id1 = add i32 %id, 1
  br label %bars
yes:
  ret i1 true
no:
  ret i1 false
}

define internal void @begin(ptr %c, ptr %head, ptr %all, i32 %n, i64 %k) noinline #0 {
  %gridAt = getelementptr i8, ptr %c, i64 $Context.Grid
  %gx32 = load i32, ptr %gridAt
  %small = icmp ult i64 %k, 4294967296
  br i1 %small, label %short, label %long
short:
  %k32 = trunc i64 %k to i32
  %syAt = getelementptr i8, ptr %gridAt, i64 4
  %sy32 = load i32, ptr %syAt
  %sx = urem i32 %k32, %gx32
  %syz = udiv i32 %k32, %gx32
  %sy = urem i32 %syz, %sy32
  %sz = udiv i32 %syz, %sy32
  br label %named
long:
  %gyAt = getelementptr i8, ptr %gridAt, i64 4
  %gy32 = load i32, ptr %gyAt
  %gx = zext i32 %gx32 to i64
  %gy = zext i32 %gy32 to i64
  %x = urem i64 %k, %gx
  %yz = udiv i64 %k, %gx
  %y = urem i64 %yz, %gy
  %z = udiv i64 %yz, %gy
  %lx32 = trunc i64 %x to i32
  %ly32 = trunc i64 %y to i32
  %lz32 = trunc i64 %z to i32
  br label %named
named:
  %x32 = phi i32 [ %sx, %short ], [ %lx32, %long ]
  %y32 = phi i32 [ %sy, %short ], [ %ly32, %long ]
  %z32 = phi i32 [ %sz, %short ], [ %lz32, %long ]
  %idAt = getelementptr i8, ptr %head, i64 $Block.ID
  %idY = getelementptr i8, ptr %idAt, i64 4
  %idZ = getelementptr i8, ptr %idAt, i64 8
  store i32 %x32, ptr %idAt
  store i32 %y32, ptr %idY
  store i32 %z32, ptr %idZ
  %lastWarp = sub i32 %n, 1
  store i32 %lastWarp at %head $Block.Turn
  store i32 0 at %head $Block.Locks
  store i64 0 at %head $Block.Clock
  store i32 %n at %head $Block.Running
  %busy = load i32 at %head $Block.Busy
  store i32 0 at %head $Block.Busy
  store i32 1 at %head $Block.Begun
  %clean = icmp eq i32 %busy, 0
  br i1 %clean, label %cleanBars, label %dirtyBars
dirtyBars:
  %bars = getelementptr i8, ptr %head, i64 $Block.Barriers
  %barBytes = mul i64 $BarrierSize, $Barriers
  call void @wipe(ptr %bars, i64 %barBytes)
  br label %cleanBars
cleanBars:
  %shared = load ptr at %c $Context.Shared
  %size = load i32 at %c $Context.SharedSize
  %size64 = zext i32 %size to i64
  call void @wipe(ptr %shared, i64 %size64)
  %entry = load i32 at %c $Loop.Entry
  %partial = load i32 at %c $Loop.Last
  %startsAt = getelementptr i8, ptr %c, i64 $Loop.Starts
  %startPartial = load i32, ptr %startsAt
  %startsAt1 = getelementptr i8, ptr %startsAt, i64 4
  %startFull = load i32, ptr %startsAt1
  %clear = load i64 at %c $Loop.Clear
  br label %warp
warp:
  %i = phi i32 [ 0, %cleanBars ], [ %i1, %cleared ]
  %ended = icmp uge i32 %i, %n
  br i1 %ended, label %done, label %one
one:
  %i64 = zext i32 %i to i64
  %off = mul i64 %i64, $WarpSize
  %w = getelementptr i8, ptr %all, i64 %off
  %isLast = icmp eq i32 %i, %lastWarp
  %active = select i1 %isLast, i32 %partial, i32 -1
  %exited = xor i32 %active, -1
  store i32 %active at %w $Warp.Active
  store i32 %exited at %w $Warp.Exited
  store i32 %entry at %w $Warp.PC
  store i32 0 at %w $Warp.Depth
  store i32 -1 at %w $Warp.Wait
  store i32 0 at %w $Warp.WaitPC
  store i32 0 at %w $Warp.WaitBy
  store i32 0 at %w $Warp.Quiet
  store i32 -1 at %w $Warp.Site
  %whole = icmp eq i32 %active, -1
  %start = select i1 %whole, i32 %startFull, i32 %startPartial
  store i32 %start at %w $Warp.Start
  %preds = getelementptr i8, ptr %w, i64 $Warp.Preds
  store <8 x i32> <i32 0, i32 0, i32 0, i32 0, i32 0, i32 0, i32 0, i32 -1>, ptr %preds, align 4
  %flags = getelementptr i8, ptr %w, i64 $Warp.Flags
  store <4 x i32> zeroinitializer, ptr %flags, align 4
  br label %reg
reg:
  %m = phi i64 [ %clear, %one ], [ %rest, %zero ]
  %noMore = icmp eq i64 %m, 0
  br i1 %noMore, label %cleared, label %zero
zero:
  %r = call i64 @llvm.cttz.i64(i64 %m, i1 true)
  %rOff = mul i64 %r, $RegSize
  %regs = getelementptr i8, ptr %w, i64 $Warp.Regs
  %regAt = getelementptr i8, ptr %regs, i64 %rOff
  store <32 x i32> zeroinitializer, ptr %regAt, align 4
  %less = add i64 %m, -1
  %rest = and i64 %m, %less
  br label %reg
cleared:
  %i1 = add i32 %i, 1
  br label %warp
done:
  ret void
}

declare i64 @llvm.cttz.i64(i64, i1)
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)

define internal void @wipe(ptr %p, i64 %size) noinline #0 {
  br label %next
next:
  %i = phi i64 [ 0, %0 ], [ %i1, %piece ]
  %ended = icmp uge i64 %i, %size
  br i1 %ended, label %done, label %piece
piece:
  %at = getelementptr i8, ptr %p, i64 %i
  store <32 x i8> zeroinitializer, ptr %at, align 1
  %i1 = add i64 %i, 32
  br label %next
done:
  ret void
}
`
