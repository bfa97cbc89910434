"""The process: broker.py puts everything together, net.py owns the sockets."""
