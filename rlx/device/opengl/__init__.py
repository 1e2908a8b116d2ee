"""The opengl device: compute shaders of OpenGL 4.3 and later."""
