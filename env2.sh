. /tmp/fe_attach/cfg.sh
rm -rf env2; mkdir env2; cd env2
nice -n 10 $P ../simple.py > job.out 2> job.err & J=$!
for i in $(seq 100); do grep -q ready job.out && break; sleep .1; done
try() { local name=$1; shift; echo "== $name"; nice -n 10 "$@" > o.txt 2>&1; echo "rc=$?"; grep -v '^$' o.txt | head -${N:-4} | cut -c1-300; }
for i in 1 2 3; do
N=1 try closederr$i bash -c "$T attach $J --seconds 0.3 -o ce$i.trace 2>&-; echo inner rc=\$?"
N=1 try detach$i $T detach $J
done
N=1 try closederr-noseconds bash -c "$T attach $J -o cn.trace 2>&-; echo inner rc=\$?"
N=1 try detach $T detach $J
N=1 try fullerr bash -c "$T attach $J --seconds 0.3 -o fe.trace 2>/dev/full; echo inner rc=\$?"
N=1 try detach $T detach $J
bash -c "strace -f -o st.txt $T attach $J --seconds 0.3 -o st.trace 2>&-; echo inner rc=\$?"  || true
ls -l *.trace
bash -c "$T attach $J --seconds 0.3 -o zz.trace 3>&2 2>&-; echo rc \$?" 
$P - <<X
import subprocess,os,sys
def pre(): os.close(2)
# put a faulthandler log
p=subprocess.run(["/work/main/.venv/bin/python","-c","import sys;f=open('exc.txt','w')\nimport traceback\nsys.excepthook=lambda *a:(traceback.print_exception(*a,file=f),f.flush())\nimport sys;sys.argv=['tracer','attach','$J','--seconds','0.3','-o','yy.trace']\nfrom tracer.cli.app import main\ntry: r=main();print('ret',r,file=f)\nexcept BaseException: traceback.print_exc(file=f)\nf.flush()"],preexec_fn=pre)
print(p.returncode); print(open('exc.txt').read()[-1800:])
X
N=1 try detach $T detach $J
ls -l *.trace
kill $J; wait $J; echo job rc=$?; cat job.out job.err
