package compile

// blocksText is Blocks, see withFields for how it is written.
const blocksText = `
define void @blocks(ptr %c) #0 {
  %work = load ptr at %c $Loop.Work
  %head = load ptr at %c $Loop.Block
  %all = getelementptr i8, ptr %head, i64 $HeaderSize
  %code = load ptr at %c $Loop.Code
  %sites = load ptr at %c $Loop.Sites
  %n = load i32 at %head $Block.Warps
  br label %turn

turn:
  %stopAt = getelementptr i8, ptr %work, i64 $Work.Stop
  %stop = load atomic i32, ptr %stopAt monotonic, align 4
  %stopped = icmp ne i32 %stop, 0
  br i1 %stopped, label %isStopped, label %limits
limits:
  %cost = load i64 at %c $Loop.Cost
  %limit = load i64 at %c $Loop.Limit
  %turns = load i64 at %c $Loop.Turns
  %numTurns = load i64 at %c $Loop.NumTurns
  %maxTurns = load i64 at %c $Loop.MaxTurns
  %gone = icmp uge i64 %cost, %limit
  %listed = icmp ne i64 %turns, 0
  %full = icmp uge i64 %numTurns, %maxTurns
  %overfull = and i1 %listed, %full
  %over = or i1 %gone, %overfull
  br i1 %over, label %isBudget, label %look
look:
  %begun = load i32 at %head $Block.Begun
  %none = icmp eq i32 %begun, 0
  br i1 %none, label %take, label %pick

pick:
  %last = load i32 at %head $Block.Turn
  br label %try
try:
  %i = phi i32 [ 0, %pick ], [ %i1, %again ]
  %j = phi i32 [ %last, %pick ], [ %jn, %again ]
  %alive = phi i1 [ false, %pick ], [ %alive1, %again ]
  %tried = icmp uge i32 %i, %n
  br i1 %tried, label %nobody, label %one
one:
  %j1 = add i32 %j, 1
  %wraps = icmp uge i32 %j1, %n
  %jn = select i1 %wraps, i32 0, i32 %j1
  %jn64 = zext i32 %jn to i64
  %off = mul i64 %jn64, $WarpSize
  %w = getelementptr i8, ptr %all, i64 %off
  %wait = load i32 at %w $Warp.Wait
  %exited = load i32 at %w $Warp.Exited
  %runs = icmp eq i32 %wait, -1
  %lives = icmp ne i32 %exited, -1
  %ok = and i1 %runs, %lives
  br i1 %ok, label %go, label %again
again:
  %i1 = add i32 %i, 1
  %alive1 = or i1 %alive, %lives
  br label %try
nobody:
  br i1 %alive, label %isDeadlock, label %finished
finished:
  store i32 0 at %head $Block.Begun
  br label %take

go:
  store i32 %jn at %head $Block.Turn
  %start = load i32 at %w $Warp.Start
  store i32 %start at %w $Warp.Site
  store i32 -1 at %w $Warp.Start
  store i32 %jn at %c $Context.Warp
  %idAt = getelementptr i8, ptr %head, i64 $Block.ID
  %ctxID = getelementptr i8, ptr %c, i64 $Context.Block
  %id = load <3 x i32>, ptr %idAt, align 4
  store <3 x i32> %id, ptr %ctxID, align 4
  %remains = sub i64 %limit, %cost
  %slice = load i64 at %c $Loop.Slice
  %short = icmp ult i64 %remains, %slice
  %budget = select i1 %short, i64 %remains, i64 %slice
  store i64 %budget at %c $Context.Budget
  store i64 0 at %c $Context.Spent
  call void %code(ptr %c, ptr %w)
  %site = load i32 at %w $Warp.Site
  %badSite = icmp eq i32 %site, -1
  br i1 %badSite, label %isLeft, label %ran
ran:
  %spent = load i64 at %c $Context.Spent
  %left = load i64 at %c $Context.Budget
  %extra = sub i64 %budget, %left
  %site64 = zext i32 %site to i64
  %rowOff = mul i64 %site64, $SiteSize
  %row = getelementptr i8, ptr %sites, i64 %rowOff
  %why = load i32, ptr %row
  %nextAt = getelementptr i8, ptr %row, i64 4
  %next = load i32, ptr %nextAt
  %barAt = getelementptr i8, ptr %row, i64 8
  %bar = load i32, ptr %barAt
  %pcAt = getelementptr i8, ptr %row, i64 12
  %pc = load i32, ptr %pcAt
  %afterAt = getelementptr i8, ptr %row, i64 16
  %after = load i32, ptr %afterAt
  %isBar = icmp eq i32 %why, $AtBarrier
  %quiet = icmp ne i32 %bar, -1
  %native = and i1 %isBar, %quiet
  %one64 = zext i1 %native to i64
  %did = add i64 %spent, %one64
  %pcNow = select i1 %native, i32 %after, i32 %pc
  store i32 %pcNow at %w $Warp.PC
  %ranTotal = load i64 at %c $Loop.Ran
  %ranTotal1 = add i64 %ranTotal, %did
  store i64 %ranTotal1 at %c $Loop.Ran
  %clock = load i64 at %head $Block.Clock
  %clock1 = add i64 %clock, %did
  store i64 %clock1 at %head $Block.Clock
  %did1 = add i64 %did, %extra
  %cost1 = add i64 %cost, %did1
  %moves = icmp ne i64 %did1, 0
  %least = add i64 %cost, 1
  %cost2 = select i1 %moves, i64 %cost1, i64 %least
  store i64 %cost2 at %c $Loop.Cost
  br i1 %listed, label %list, label %listedNow
list:
  %turnOff = mul i64 %numTurns, 8
  %turnAddr = add i64 %turns, %turnOff
  %turnAt = inttoptr i64 %turnAddr to ptr
  store i32 %jn, ptr %turnAt
  %turnAt2 = getelementptr i8, ptr %turnAt, i64 4
  %did32 = trunc i64 %did to i32
  store i32 %did32, ptr %turnAt2
  %numTurns1 = add i64 %numTurns, 1
  store i64 %numTurns1 at %c $Loop.NumTurns
  br label %listedNow
listedNow:
  switch i32 %why, label %isLeft [
    i32 $Done, label %ended
    i32 $OutOfBudget, label %yields
    i32 $AtBarrier, label %barrier
  ]
yields:
  store i32 %next at %w $Warp.Start
  br label %turn
ended:
  %gone2 = load i32 at %w $Warp.Exited
  %really = icmp eq i32 %gone2, -1
  br i1 %really, label %ends, label %isLeft
ends:
  %running = load i32 at %head $Block.Running
  %running1 = sub i32 %running, 1
  store i32 %running1 at %head $Block.Running
  %busy = load i32 at %head $Block.Busy
  %idle = icmp eq i32 %busy, 0
  br i1 %idle, label %turn, label %settle

barrier:
  br i1 %quiet, label %arrive, label %isLeft
arrive:
  %by = load i32 at %w $Warp.Active
  store i32 %next at %w $Warp.Start
  store i32 %bar at %w $Warp.Wait
  store i32 %pc at %w $Warp.WaitPC
  store i32 %by at %w $Warp.WaitBy
  store i32 1 at %w $Warp.Quiet
  %bar64 = zext i32 %bar to i64
  %bOff = mul i64 %bar64, $BarrierSize
  %bars = getelementptr i8, ptr %head, i64 $Block.Barriers
  %b = getelementptr i8, ptr %bars, i64 %bOff
  %arrived = load i32 at %b $Barrier.Arrived
  %fresh = icmp eq i32 %arrived, 0
  %arrived1 = add i32 %arrived, 1
  store i32 %arrived1 at %b $Barrier.Arrived
  store i32 0 at %b $Barrier.Expected
  %true = load i32 at %b $Barrier.True
  %true0 = select i1 %fresh, i32 0, i32 %true
  %pop = call i32 @llvm.ctpop.i32(i32 %by)
  %true1 = add i32 %true0, %pop
  store i32 %true1 at %b $Barrier.True
  store i32 1 at %b $Barrier.Any
  %not = load i32 at %b $Barrier.Not
  %not0 = select i1 %fresh, i32 0, i32 %not
  store i32 %not0 at %b $Barrier.Not
  store i32 1 at %head $Block.Busy
  %runningNow = load i32 at %head $Block.Running
  %waits = icmp ult i32 %arrived1, %runningNow
  br i1 %waits, label %turn, label %complete
complete:
  %barAfter = add i32 %bar, 1
  br label %settle

settle:
  %fromBar = phi i32 [ 0, %ends ], [ %bar, %complete ]
  %toBar = phi i32 [ $Barriers, %ends ], [ %barAfter, %complete ]
  %quietly = call i1 @settle(ptr %head, ptr %all, i32 %n, i32 %fromBar, i32 %toBar)
  br i1 %quietly, label %turn, label %isSettle

take:
  %takeAt = getelementptr i8, ptr %work, i64 $Work.Next
  %countAt = getelementptr i8, ptr %work, i64 $Work.Count
  %count = load i64, ptr %countAt
  %peek = load atomic i64, ptr %takeAt monotonic, align 8
  %some = icmp ult i64 %peek, %count
  br i1 %some, label %try2, label %isExhausted
try2:
  %k = atomicrmw add ptr %takeAt, i64 1 monotonic
  %mine = icmp ult i64 %k, %count
  br i1 %mine, label %new, label %isExhausted
new:
  call void @begin(ptr %c, ptr %head, ptr %all, i32 %n, i64 %k)
  br label %turn

isExhausted:
  store i32 $Exhausted at %c $Loop.Why
  ret void
isBudget:
  store i32 $Budget at %c $Loop.Why
  ret void
isStopped:
  store i32 $Stopped at %c $Loop.Why
  ret void
isLeft:
  store i32 $Left at %c $Loop.Why
  ret void
isDeadlock:
  store i32 $Deadlock at %c $Loop.Why
  ret void
isSettle:
  store i32 $Settle at %c $Loop.Why
  ret void
}

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
