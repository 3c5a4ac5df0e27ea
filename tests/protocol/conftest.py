from hypothesis import settings

# a busy machine is no failure of the code
settings.register_profile("protocol", deadline=None)
settings.load_profile("protocol")
