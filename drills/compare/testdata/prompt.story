# w3 is killed at second 10 and leaves routing 2.1 s later; one request fails.
workers w1 w2 w3
target death w3
mark steady.start 4
mark steady.end 8
mark death.inject 9.99..10
mark death.effective 9.99..10.01
mark settle.end 17
fault death kill w3
gate steady ok
samples 0..18
set 0.. routable(w1) 1
set 0.. routable(w2) 1
set 0.. routable(w3) 1
set 0.. inflight(w1) 2
set 0.. inflight(w2) 1
set 0.. engine_running(w3) 1
set 0.. count_error(w1/0) 0
set 11..11.6 count_error(w1/0) 0.004
absent 10.1.. engine_running(w3)
set 12.05.. routable(w3) 0
set 12.05.. veto(w3) dead
request 10.2 w3 end=0.1 outcome=failed
