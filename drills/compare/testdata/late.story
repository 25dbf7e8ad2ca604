# Another seed: w1 is killed at second 9 and is still routable at the end; four requests fail, three are
# retried. Two seconds of samples are missing.
workers w1 w2 w3
target death w1
mark steady.start 3
mark steady.end 7.5
mark death.inject 8.99..9
mark death.effective 8.99..9.02
mark settle.end 16
mark main.end 16.2
fault death kill w1
gate steady ok
samples 0..18
set 0.. routable(w1) 1
set 0.. routable(w2) 1
set 0.. routable(w3) 1
set 0.. inflight(w2) 3
set 0.. engine_running(w1) 1
absent 9.1.. engine_running(w1)
drop 12..14
request 9.2 w1 end=0.1 outcome=failed
request 9.7 w1 end=0.1 outcome=failed
request 10.2 w1 end=0.1 outcome=failed
request 11.2 - end=0.1 outcome=failed
request 12.2 w2 ttft=0.3 end=1 attempts=2
request 12.7 w2 ttft=0.3 end=1 attempts=2
request 13.2 w2 ttft=0.3 end=1 attempts=2
